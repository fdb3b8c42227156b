//! The node of the fault campaign (`make soak`): sends recognisable samples, checks the samples that
//! it receives, and records both, so that they can be compared with the counters, also after a
//! kill.
//!
//! Its argument is JSON: see [`Settings`]. Each process writes a file of its own in `$SOAK_RECORDS`,
//! one line an event and one `write` a line, so that the lines survive a kill:
//!
//! | line | |
//! |---|---|
//! | `> output number` | about to send |
//! | `< output number queued missed` | sent, with the receipt |
//! | `! output number error` | not sent |
//! | `= input incarnation number sequence` | received undamaged |
//! | `x input reason` | received damaged; or the clock went back |
//! | `f input incarnation` | the last value of a producer's process that failed (`on_failure`) |
//! | `p name value` | the value of a parameter, at the start and when it changes |

use std::{
    collections::VecDeque,
    error::Error,
    fs::File,
    io::Write,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use fastrand::Rng;
use nervure_node::{Envelope, Event, Handle, Node, Sample, SendError};
use serde_json::Value;

type Failure = Box<dyn Error>;

/// A prime, so that consecutive samples differ.
const NOISE_BYTES: usize = 65_537;

/// The node's behaviour, from its argument.
struct Settings(Value);

impl Settings {
    fn number(&self, key: &str) -> u64 {
        self.0[key].as_u64().unwrap_or(0)
    }

    fn millis(&self, key: &str) -> Duration {
        Duration::from_millis(self.number(key))
    }

    fn list<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Value> {
        self.0[key].as_array().into_iter().flatten()
    }
}

fn main() -> Result<(), Failure> {
    let settings = Settings(serde_json::from_str(
        &std::env::args()
            .nth(1)
            .ok_or("expected the settings as JSON")?,
    )?);
    fail_if_requested(&settings)?;
    leave_children(&settings)?;
    let node = Node::connect()?;
    let mut worker = Worker {
        record: File::create(records_folder()?.join(format!(
            "{}.{}",
            node.id(),
            node.incarnation()
        )))?,
        noise: noise(),
        sent: 0,
        received: 0,
        held: VecDeque::new(),
        read: i64::MIN,
        clock: ClockDriver::new(&settings, node.incarnation()),
        settings,
    };
    worker.work(node)
}

fn records_folder() -> Result<std::path::PathBuf, Failure> {
    Ok(std::env::var("SOAK_RECORDS")?.into())
}

/// Fails at the first `failing_starts` starts. A file per start counts them, because a process that has
/// not connected has no incarnation.
fn fail_if_requested(settings: &Settings) -> Result<(), Failure> {
    let id = std::env::args().nth(2).ok_or("expected an id")?;
    for start in 0..settings.number("failing_starts") {
        if File::create_new(records_folder()?.join(format!("{id}.failed-{start}"))).is_ok() {
            return Err("as requested".into());
        }
    }
    Ok(())
}

/// Starts processes that outlive the node, in its process group and outside.
fn leave_children(settings: &Settings) -> Result<(), Failure> {
    for kind in settings.list("children") {
        let script = match kind.as_str() {
            Some("group") => "sleep 1000 &",
            _ => "setsid sleep 1000 &",
        };
        Command::new("sh").args(["-c", script]).status()?;
    }
    Ok(())
}

struct Worker {
    settings: Settings,
    record: File,
    noise: Vec<u8>,
    sent: u64,
    received: u64,
    held: VecDeque<(Instant, Sample)>,
    /// Latest reading of the clock.
    read: i64,
    clock: Option<ClockDriver>,
}

impl Worker {
    fn work(&mut self, mut node: Node) -> Result<(), Failure> {
        let pause = Duration::from_micros(self.settings.number("pause_micros"));
        let count = self.settings.0["count"].as_u64().unwrap_or(u64::MAX);
        let is_source = !pause.is_zero();
        let begin = Instant::now();
        let leave_after = self.settings.millis("leave_after_millis");
        let mut due = begin;
        for (name, value) in node.params() {
            writeln(&mut self.record, format_args!("p {name} {value}"))?;
        }
        loop {
            let now = Instant::now();
            self.check_clock(&node)?;
            if !leave_after.is_zero() && begin.elapsed() >= leave_after {
                return Ok(());
            }
            if is_source && now >= due {
                due = now + pause;
                for _ in 0..self.settings.number("burst").max(1) {
                    if self.sent == count || !self.send_all(&node, None)? {
                        return Ok(());
                    }
                }
            }
            let timeout = if is_source {
                due - now
            } else {
                Duration::from_millis(100)
            };
            match node.next_timeout(timeout.min(Duration::from_millis(100))) {
                Some(Event::Input { id, sample })
                    if sample.metadata()?.get("on_failure").is_some() =>
                {
                    let incarnation = sample.header().incarnation;
                    writeln(&mut self.record, format_args!("f {id} {incarnation}"))?;
                }
                Some(Event::Input { id, sample }) => {
                    self.receive(&id, &sample)?;
                    self.fail_if_requested(&node)?;
                    let is_silent = self.settings.list("silent").any(|input| *input == *id);
                    if !is_source && !is_silent && !self.send_all(&node, Some(&sample))? {
                        return Ok(());
                    }
                    self.hold(sample);
                }
                Some(Event::Tick { .. }) if !self.send_all(&node, None)? => return Ok(()),
                Some(Event::Param { name, value }) => {
                    writeln(&mut self.record, format_args!("p {name} {value}"))?;
                }
                Some(Event::Stop { .. }) => return Ok(()),
                _ => {}
            }
            self.let_go();
            self.poll_latest(&mut node)?;
            self.hang_if_requested(&node);
        }
    }

    /// False when the dataflow stops.
    fn send_all(&mut self, node: &Handle, like: Option<&Sample>) -> Result<bool, Failure> {
        let sizes: Vec<u64> = self
            .settings
            .list("bytes")
            .filter_map(Value::as_u64)
            .collect();
        let number = self.sent;
        self.sent += 1;
        for output in node.outputs() {
            let bytes = sizes[(number % sizes.len() as u64) as usize] as usize;
            writeln(&mut self.record, format_args!("> {output} {number}"))?;
            match send(node, output, number, bytes, like, &self.noise) {
                Ok((queued, missed)) => {
                    writeln(
                        &mut self.record,
                        format_args!("< {output} {number} {queued} {missed}"),
                    )?;
                }
                Err(SendError::Stopped) => {
                    writeln(
                        &mut self.record,
                        format_args!("! {output} {number} stopped"),
                    )?;
                    return Ok(false);
                }
                // A loan without memory: every edge has counted it.
                Err(SendError::OutOfMemory { .. }) => {
                    writeln(&mut self.record, format_args!("! {output} {number} memory"))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, input: &str, sample: &Sample) -> Result<(), Failure> {
        self.received += 1;
        let (incarnation, sequence) = (sample.header().incarnation, sample.header().sequence);
        match check(sample, &self.noise) {
            Ok(number) => {
                writeln(
                    &mut self.record,
                    format_args!("= {input} {incarnation} {number} {sequence}"),
                )?;
            }
            Err(reason) => {
                writeln(
                    &mut self.record,
                    format_args!("x {input} {reason} ({incarnation}, {sequence})"),
                )?;
            }
        }
        sleep(Duration::from_micros(self.settings.number("work_micros")));
        Ok(())
    }

    fn hold(&mut self, sample: Sample) {
        self.held.push_back((Instant::now(), sample));
    }

    fn let_go(&mut self) {
        let (most, age) = (
            self.settings.number("hold") as usize,
            self.settings.millis("hold_millis"),
        );
        while self.held.len() > most
            || self
                .held
                .front()
                .is_some_and(|(since, _)| since.elapsed() > age)
        {
            // The content of a held sample must not have changed.
            let whole = self
                .held
                .pop_front()
                .map(|(_, sample)| check(&sample, &self.noise));
            if let Some(Err(reason)) = whole {
                let _ = writeln(&mut self.record, format_args!("x held {reason}"));
            }
        }
    }

    fn poll_latest(&mut self, node: &mut Node) -> Result<(), Failure> {
        for input in self.settings.0["latest"]
            .as_array()
            .cloned()
            .unwrap_or_default()
        {
            let input = input.as_str().unwrap_or_default();
            if let Some(sample) = node.latest(input)?
                && sample.metadata()?.get("on_failure").is_none()
                && let Err(reason) = check(&sample, &self.noise)
            {
                writeln(&mut self.record, format_args!("x {input} {reason}"))?;
            }
        }
        Ok(())
    }

    /// Records if the dataflow's clock went back, which it never does, whichever node drives it.
    fn check_clock(&mut self, node: &Handle) -> Result<(), Failure> {
        let read = node.now();
        if read < self.read {
            writeln(
                &mut self.record,
                format_args!("x clock it reads {read} after {}", self.read),
            )?;
        }
        self.read = read;
        if let Some(clock) = &mut self.clock {
            clock.drive(node);
        }
        Ok(())
    }

    /// Fails, in the first process, after `fail_after` received samples.
    fn fail_if_requested(&self, node: &Handle) -> Result<(), Failure> {
        if node.incarnation() == 0 && self.received == self.settings.number("fail_after") {
            return Err("as requested".into());
        }
        Ok(())
    }

    fn hang_if_requested(&self, node: &Handle) {
        let after = self.settings.number("hang_after");
        if after > 0 && node.incarnation() == 0 && self.sent + self.received >= after {
            sleep(Duration::from_secs(1000));
        }
    }
}

/// Drives the dataflow's clock as a simulator may: it jumps, stands still, and runs at other rates;
/// then it follows real time.
struct ClockDriver {
    every: Duration,
    steps_left: u64,
    due: Instant,
    random: Rng,
}

impl ClockDriver {
    fn new(settings: &Settings, incarnation: u32) -> Option<Self> {
        let clock = settings.0["clock"].as_object()?;
        let number = |key: &str| clock[key].as_u64().unwrap_or(0);
        Some(Self {
            every: Duration::from_millis(number("every_millis")),
            steps_left: number("steps"),
            due: Instant::now(),
            random: Rng::with_seed(number("seed") << 8 | u64::from(incarnation)),
        })
    }

    fn drive(&mut self, node: &Handle) {
        const HOUR: i64 = 3_600_000_000_000;
        if Instant::now() < self.due {
            return;
        }
        let now = node.now();
        let (origin, rate) = match self.random.u64(..6) {
            _ if self.steps_left == 0 => (now, 1.0),
            0 => (now + HOUR, 1.0),
            // The keeper does not set it back.
            1 => (now - HOUR, 1.0),
            2 => (now, 0.0),
            3 => (now, 10.0),
            4 => (now, 0.5),
            _ => (now + 10_000_000, 1.0),
        };
        node.drive_clock(origin, nervure_node::monotonic_nanos(), rate);
        // The last step returned to real time.
        self.due = match self.steps_left {
            0 => Instant::now() + Duration::from_secs(100_000),
            _ => Instant::now() + self.every,
        };
        self.steps_left = self.steps_left.saturating_sub(1);
    }
}

fn writeln(record: &mut File, line: std::fmt::Arguments<'_>) -> std::io::Result<()> {
    record.write_all(format!("{line}\n").as_bytes())
}

/// Sends a sample; every fourth one is written in place.
fn send(
    node: &Handle,
    output: &str,
    number: u64,
    bytes: usize,
    like: Option<&Sample>,
    noise: &[u8],
) -> Result<(u32, u32), SendError> {
    let publisher = node.output(output).expect("one of its own");
    let envelope = like.map_or_else(Envelope::new, |sample| Envelope::new().like(sample));
    let receipt = if number % 4 == 3 {
        let mut loan = publisher.loan::<u8>(&[bytes])?;
        fill(&mut loan, node.incarnation(), number, noise);
        loan.send_with(&envelope)?
    } else {
        let mut payload = vec![0; bytes];
        fill(&mut payload, node.incarnation(), number, noise);
        node.send_with(output, &payload[..], &envelope)?
    };
    Ok((receipt.queued, receipt.missed))
}

fn noise() -> Vec<u8> {
    // Marsaglia's xorshift generator, as in `python_node.py`, which checks these bytes.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..2 * NOISE_BYTES).map(next).collect()
}

/// The bytes between the marks at both ends of a sample with this number.
fn expected(incarnation: u32, number: u64, noise: &[u8]) -> &[u8] {
    let key = (number + (u64::from(incarnation) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &noise[(key >> 32) as usize % NOISE_BYTES..][..NOISE_BYTES]
}

fn mark(incarnation: u32, number: u64) -> [u8; 16] {
    (u128::from(number) << 64 | u128::from(incarnation)).to_le_bytes()
}

/// Samples have at least 64 bytes: a mark at each end, and noise between.
fn fill(payload: &mut [u8], incarnation: u32, number: u64, noise: &[u8]) {
    let mark = mark(incarnation, number);
    let end = payload.len() - 16;
    payload[..16].copy_from_slice(&mark);
    payload[end..].copy_from_slice(&mark);
    for chunk in payload[16..end].chunks_mut(NOISE_BYTES) {
        chunk.copy_from_slice(&expected(incarnation, number, noise)[..chunk.len()]);
    }
}

/// Returns the number of an undamaged sample.
fn check(sample: &Sample, noise: &[u8]) -> Result<u64, String> {
    let payload = sample.bytes();
    if payload.len() < 64 {
        return Err(format!("it has {} bytes", payload.len()));
    }
    let end = payload.len() - 16;
    let (first, last) = (&payload[..16], &payload[end..]);
    let both = u128::from_le_bytes(first.try_into().expect("16 bytes"));
    let (incarnation, number) = (both as u32, (both >> 64) as u64);
    if last != first || incarnation != sample.header().incarnation {
        return Err(format!("its marks are {first:?} and {last:?}"));
    }
    let noise = expected(incarnation, number, noise);
    match payload[16..end]
        .chunks(NOISE_BYTES)
        .position(|chunk| *chunk != noise[..chunk.len()])
    {
        Some(chunk) => Err(format!("chunk {chunk} is not that of sample {number}")),
        None => Ok(number),
    }
}
