//! An endpoint of the declared experiments: a peer publishes and receives bytes, and everything else is here.
//! Protocol, header and logs are the same as in `nervure_lab/peer_endpoint.py`.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::process::{now_nanos, sleep_until_nanos};

const PROBE: i64 = -1;
const LEAST_BYTES: usize = 64;
const HEADER_BYTES: usize = 32;
const PROBE_PERIOD: Duration = Duration::from_millis(20);
const POLL_PERIOD: Duration = Duration::from_millis(50);
/// The last part of each wait is a busy loop: sleeping alone wakes up late by tens of microseconds.
const BUSY_NANOS: u64 = 150_000;

/// The ends that an endpoint opens.
#[derive(Debug, Clone, Deserialize)]
pub struct Wiring {
    /// Unique; part of the names of services and files, so that runs do not meet.
    pub run_name: String,
    pub publishers: usize,
    pub subscribers: usize,
    pub payload_bytes: usize,
    /// Messages that a queue holds.
    pub depth: usize,
    pub configuration: String,
    pub reliable: bool,
    /// IPv4 address of the first host, where the subscribers are.
    pub address: String,
    pub port: u16,
    /// Folder for files and sockets of the run.
    pub directory: String,
    place: String,
    role: String,
    index: i64,
}

impl Wiring {
    /// Reads the wiring that the lab passes to this process.
    pub fn from_environment() -> Result<Self, String> {
        from_environment("NERVURE_LAB_WIRING")
    }

    /// Whether a process with one connection for all its topics listens: the only publisher of a host, or else
    /// the first host.
    pub fn listens(&self) -> bool {
        let publisher_listens = self.place == "host" && self.publishers == 1;
        matches!(&*self.role, "publisher" | "client") == publisher_listens
    }

    fn published(&self) -> Option<&'static str> {
        match &*self.role {
            "publisher" => Some("data"),
            "client" => Some("ping"),
            "echo" => Some("pong"),
            _ => None,
        }
    }

    fn received(&self) -> Option<&'static str> {
        match &*self.role {
            "subscriber" => Some("data"),
            "client" => Some("pong"),
            "echo" => Some("ping"),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Case {
    rate_hz: f64,
    messages: i64,
    warmup: i64,
    reads: bool,
    work_millis: f64,
    ends_on_time: bool,
}

/// A middleware. Each end is opened on the thread that uses it.
pub trait Peer: Send + Sync + 'static {
    type Publisher: PublishBytes;
    type Receiver: ReceiveBytes;
    fn publisher(&self, wiring: &Wiring, topic: &str) -> Result<Self::Publisher, String>;
    fn receiver(&self, wiring: &Wiring, topic: &str) -> Result<Self::Receiver, String>;
}

/// Sends messages of a topic.
pub trait PublishBytes {
    /// Sends one message, which `fill` writes into memory of the peer.
    fn publish(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), String>;
}

/// Receives the messages of a topic.
pub trait ReceiveBytes {
    /// Passes messages on, and returns after the timeout at the latest.
    fn receive(
        &mut self,
        timeout: Duration,
        on_message: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String>;
}

/// Runs the endpoint that the environment describes until the driver ends it.
pub fn run(peer: impl Peer) -> Result<(), String> {
    // Sleeps end within a microsecond instead of the kernel's default of 50.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
        .map_err(|error| error.to_string())?;
    let peer = Arc::new(peer);
    let wiring = Wiring::from_environment()?;
    let case: Case = from_environment("NERVURE_LAB_CASE")?;
    let opening = now_nanos();
    let driver = Driver::connect()?;
    let (mut publications, mut receptions) = (None, None);
    if wiring.role == "echo" {
        spawn_echo(&peer, &wiring)?;
    } else {
        if let Some(topic) = wiring.published() {
            publications = Some(Publications::new(peer.publisher(&wiring, topic)?, &wiring));
        }
        if wiring.received().is_some() {
            let all = Arc::new(Receptions::new(&driver, &wiring, &case)?);
            receptions = Some(all.clone());
            spawn_receiver(&peer, &wiring, move || {
                Ok(move |payload: &[u8]| all.take(payload))
            })?;
        }
    }
    driver.report(&json!({
        "role": wiring.role, "index": wiring.index, "pid": std::process::id(),
        "opening": opening, "opened": now_nanos(),
    }))?;
    follow(driver, &wiring, &case, publications, receptions)
}

fn spawn_echo<P: Peer>(peer: &Arc<P>, wiring: &Wiring) -> Result<(), String> {
    let (answering, wired) = (peer.clone(), wiring.clone());
    spawn_receiver(peer, wiring, move || {
        let mut answers = answering.publisher(&wired, wired.published().unwrap_or_default())?;
        // A copy, as an echo that computes an answer would make.
        Ok(move |payload: &[u8]| {
            answers.publish(payload.len(), |memory| memory.copy_from_slice(payload))
        })
    })
}

/// Receives on a thread of its own; returns when it has opened its end.
fn spawn_receiver<P: Peer, F: FnMut(&[u8]) -> Result<(), String>>(
    peer: &Arc<P>,
    wiring: &Wiring,
    handler: impl FnOnce() -> Result<F, String> + Send + 'static,
) -> Result<(), String> {
    let (peer, wiring) = (peer.clone(), wiring.clone());
    let (opened, is_open) = mpsc::channel();
    thread::spawn(move || {
        let receive = || {
            let mut on_message = handler()?;
            let mut receiver = peer.receiver(&wiring, wiring.received().unwrap_or_default())?;
            let _ = opened.send(());
            loop {
                receiver.receive(POLL_PERIOD, &mut on_message)?;
            }
        };
        let ended: Result<(), String> = receive();
        if let Err(error) = ended {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    });
    is_open
        .recv()
        .map_err(|_| "the receiver did not open".to_owned())
}

fn from_environment<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, String> {
    let text = std::env::var(name)
        .map_err(|_| format!("{name} is not set: the lab starts this program"))?;
    serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))
}

fn follow<P: PublishBytes>(
    mut driver: Driver,
    wiring: &Wiring,
    case: &Case,
    mut publications: Option<Publications<P>>,
    receptions: Option<Arc<Receptions>>,
) -> Result<(), String> {
    let (mut is_probing, mut is_reported) = (false, false);
    loop {
        if let Some(publications) = publications.as_mut().filter(|_| is_probing) {
            publications.probe()?;
        }
        let line = driver.line(if is_probing {
            PROBE_PERIOD
        } else {
            POLL_PERIOD
        })?;
        let mut stops = false;
        match line.as_deref().unwrap_or_default().split_once(' ') {
            Some(("start", time)) => {
                is_probing = false;
                if let Some(publications) = &mut publications {
                    publications
                        .send_all(case, time.parse().map_err(|_| "start without a time")?)?;
                    write_log(wiring, "publications", &publications.log)?;
                    driver.report(&json!({"sent": true}))?;
                }
            }
            _ => match line.as_deref() {
                Some("probe") => is_probing = true,
                Some("stop") => stops = true,
                Some("leave") => return Ok(()),
                _ => {}
            },
        }
        if let Some(receptions) = receptions.as_ref().filter(|_| !is_reported)
            && (stops || receptions.is_complete())
        {
            receptions.report(wiring, &driver)?;
            is_reported = true;
        }
        if stops {
            is_reported = true;
            driver.report(&json!({"stopped": true}))?;
        }
    }
}

struct Publications<P> {
    publisher: P,
    index: i64,
    source: Vec<u8>,
    log: Vec<i64>,
}

impl<P: PublishBytes> Publications<P> {
    fn new(publisher: P, wiring: &Wiring) -> Self {
        // Not zeros: compression and shared zero pages would favour some. Xorshift, Marsaglia (2003).
        let mut state = 88_172_645_463_325_252_u64;
        let source = (0..wiring.payload_bytes.max(LEAST_BYTES))
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        Self {
            publisher,
            index: wiring.index,
            source,
            log: Vec::new(),
        }
    }

    fn probe(&mut self) -> Result<(), String> {
        self.publish(LEAST_BYTES, PROBE, 0).map(drop)
    }

    fn send_all(&mut self, case: &Case, start: u64) -> Result<(), String> {
        let period = 1e9 / case.rate_hz;
        let messages = case.messages + case.warmup;
        let end = start + (messages as f64 * period) as u64;
        for sequence in 0..messages {
            let due = start + (sequence as f64 * period) as u64;
            wait_until(due);
            if case.ends_on_time && now_nanos() > end {
                return Ok(());
            }
            let before = now_nanos();
            let stamped = self.publish(self.source.len(), sequence, due as i64)?;
            self.log.extend([
                sequence,
                due as i64,
                before as i64,
                stamped,
                now_nanos() as i64,
            ]);
        }
        // The report of this end must not disturb the last message.
        wait_until(end);
        Ok(())
    }

    /// Returns the time of the stamp, which is written after the copy.
    fn publish(&mut self, bytes: usize, sequence: i64, due: i64) -> Result<i64, String> {
        let (source, index) = (&self.source[..bytes], self.index);
        let mut stamped = 0;
        self.publisher.publish(bytes, |memory| {
            memory.copy_from_slice(source);
            stamped = now_nanos() as i64;
            for (place, value) in [sequence, index, due, stamped].into_iter().enumerate() {
                memory[8 * place..8 * place + 8].copy_from_slice(&value.to_ne_bytes());
            }
        })?;
        Ok(stamped)
    }
}

fn wait_until(due: u64) {
    if due > now_nanos() + BUSY_NANOS {
        sleep_until_nanos(due - BUSY_NANOS);
    }
    while now_nanos() < due {
        std::hint::spin_loop();
    }
}

/// The messages that an endpoint received.
struct Receptions {
    driver: Mutex<UnixStream>,
    expected: usize,
    reads: bool,
    work_nanos: u64,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    probed: HashSet<i64>,
    seen: HashSet<(i64, i64)>,
    log: Vec<i64>,
    /// Messages without a header.
    wrong: usize,
}

impl Receptions {
    fn new(driver: &Driver, wiring: &Wiring, case: &Case) -> Result<Self, String> {
        Ok(Self {
            driver: Mutex::new(driver.writer()?),
            expected: (case.messages + case.warmup) as usize * wiring.publishers,
            reads: case.reads,
            work_nanos: (case.work_millis * 1e6) as u64,
            received: Mutex::default(),
        })
    }

    fn take(&self, payload: &[u8]) -> Result<(), String> {
        let received = now_nanos();
        let mut all = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if payload.len() < HEADER_BYTES {
            all.wrong += 1;
            return Ok(());
        }
        let [sequence, publisher, due, stamped] = [0, 1, 2, 3].map(|place| {
            let bytes = payload[8 * place..8 * place + 8].try_into();
            i64::from_ne_bytes(bytes.unwrap_or_default())
        });
        if sequence == PROBE {
            if all.probed.insert(publisher) {
                let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
                send(&driver, &json!({"probe": publisher, "received": received}))?;
            }
            return Ok(());
        }
        let mut read = received;
        if self.reads {
            std::hint::black_box(payload.to_vec());
            read = now_nanos();
        }
        if self.work_nanos > 0 {
            while now_nanos() < received + self.work_nanos {
                std::hint::black_box(payload.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            }
            read = now_nanos();
        }
        all.log.extend([
            sequence,
            publisher,
            due,
            stamped,
            received as i64,
            read as i64,
        ]);
        all.seen.insert((sequence, publisher));
        Ok(())
    }

    fn is_complete(&self) -> bool {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.seen.len() >= self.expected
    }

    fn report(&self, wiring: &Wiring, driver: &Driver) -> Result<(), String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        write_log(wiring, "receptions", &received.log)?;
        driver.report(&json!({"received": true, "wrong": received.wrong}))
    }
}

fn write_log(wiring: &Wiring, kind: &str, log: &[i64]) -> Result<(), String> {
    let directory = std::env::var("NERVURE_LAB_LOGS").map_err(|_| "NERVURE_LAB_LOGS is not set")?;
    let name = format!("{kind}-{}-{}.log", wiring.role, wiring.index);
    let bytes: Vec<u8> = log.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let file = PathBuf::from(directory).join(name);
    std::fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))
}

/// The connection to the driver.
struct Driver {
    lines: BufReader<UnixStream>,
    line: String,
}

impl Driver {
    fn connect() -> Result<Self, String> {
        let path = std::env::var("NERVURE_LAB_RENDEZVOUS")
            .map_err(|_| "NERVURE_LAB_RENDEZVOUS is not set")?;
        let stream = UnixStream::connect(path).map_err(|error| format!("the driver: {error}"))?;
        Ok(Self {
            lines: BufReader::new(stream),
            line: String::new(),
        })
    }

    fn writer(&self) -> Result<UnixStream, String> {
        self.lines
            .get_ref()
            .try_clone()
            .map_err(|error| format!("the driver: {error}"))
    }

    fn report(&self, record: &Value) -> Result<(), String> {
        send(self.lines.get_ref(), record)
    }

    /// Returns the next line, or `None` after the timeout.
    fn line(&mut self, timeout: Duration) -> Result<Option<String>, String> {
        let failed = |error| format!("reading from the driver: {error}");
        self.lines
            .get_ref()
            .set_read_timeout(Some(timeout))
            .map_err(failed)?;
        match self.lines.read_line(&mut self.line) {
            Ok(0) => Err("the driver has ended".to_owned()),
            Ok(_) => Ok(Some(std::mem::take(&mut self.line).trim_end().to_owned())),
            // A part of a line stays for the next call.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn send(mut stream: &UnixStream, record: &Value) -> Result<(), String> {
    // One call for each line: two threads write.
    stream
        .write_all(format!("{record}\n").as_bytes())
        .map_err(|error| format!("writing to the driver: {error}"))
}
