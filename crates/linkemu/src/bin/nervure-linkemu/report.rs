//! The counters, for people and as JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use nervure_linkemu::{Count, Counters, Duplex, Scenario};
use serde_json::{Value, json};

use crate::forward::{Forwarder, Port};

/// The end of a command.
#[derive(Clone, Copy, Default)]
pub struct CommandEnd {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Packets that its device dropped because the emulator read it too late; `None` while it runs.
    pub unread_packets: Option<u64>,
}

/// Writes lines of JSON.
pub struct JsonLines(BufWriter<Box<dyn Write>>);

impl JsonLines {
    pub fn create(path: &Path) -> io::Result<Self> {
        let writer: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(path)?)
        };
        Ok(Self(BufWriter::new(writer)))
    }

    pub fn write(&mut self, object: &Value) -> io::Result<()> {
        writeln!(self.0, "{object}")?;
        self.0.flush()
    }
}

/// The changes since the last line.
#[derive(Default)]
pub struct Live {
    before: Vec<Counters>,
    at: Duration,
}

impl Live {
    /// A line for people on stderr.
    pub fn line(&mut self, forwarder: &Forwarder) -> String {
        let now = forwarder.elapsed();
        let seconds = (now - self.at).as_secs_f64().max(1e-9);
        let counters: Vec<Counters> = forwarder
            .air_hosts()
            .map(|(_, counters)| *counters)
            .collect();
        self.before.resize(counters.len(), Counters::default());
        let mut line = format!("{:7.1} s", now.as_secs_f64());
        for ((port, counters), before) in forwarder.air_hosts().zip(&self.before) {
            let mbit =
                |now: Count, before: Count| (now.bytes - before.bytes) as f64 * 8e-6 / seconds;
            let offered = mbit(counters.offered, before.offered);
            let delivered = mbit(counters.delivered, before.delivered);
            let lost = counters.lost().packets - before.lost().packets;
            let name = &port.name;
            line += &format!("   {name}: {offered:.1} -> {delivered:.1} Mbit/s, {lost} lost");
        }
        (self.before, self.at) = (counters, now);
        line
    }
}

/// One second, as JSON.
pub fn second(forwarder: &Forwarder) -> Value {
    let hosts: Vec<Value> = forwarder
        .air_hosts()
        .map(|(port, counters)| host(port, counters))
        .collect();
    json!({"kind": "second", "seconds": forwarder.elapsed().as_secs_f64(), "hosts": hosts})
}

/// The whole run, as JSON.
pub fn summary(
    scenario: &Scenario,
    congestion_control: &str,
    forwarder: &Forwarder,
    ends: &[CommandEnd],
) -> Value {
    let hosts: Vec<Value> = forwarder
        .air_hosts()
        .zip(ends)
        .map(|((port, counters), end)| {
            let mut object = host(port, counters);
            object["exit_code"] = json!(end.exit_code);
            object["signal"] = json!(end.signal);
            object["unread_packets"] = json!(end.unread_packets);
            object
        })
        .collect();
    let late = forwarder.late();
    json!({
        "kind": "summary",
        "seconds": forwarder.elapsed().as_secs_f64(),
        "start_monotonic_nanos": forwarder.start_nanos(),
        "seed": scenario.seed,
        "duplex": if scenario.duplex == Duplex::Half { "half" } else { "full" },
        "congestion_control": congestion_control,
        "late_mean_micros": late.mean().as_micros() as u64,
        "late_longest_micros": late.longest.as_micros() as u64,
        "cpu_seconds": cpu_seconds(),
        "hosts": hosts,
    })
}

/// The whole run, for people.
pub fn table(
    scenario: &Scenario,
    congestion_control: &str,
    forwarder: &Forwarder,
    ends: &[CommandEnd],
) -> String {
    let seconds = forwarder.elapsed().as_secs_f64();
    let duplex = if scenario.duplex == Duplex::Half {
        "half"
    } else {
        "full"
    };
    let mut text = format!(
        "link: {seconds:.1} s, seed {}, {duplex} duplex, TCP congestion control {congestion_control}\n{:<12}{:>10}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>10}\n",
        scenario.seed,
        "from",
        "offered",
        "delivered",
        "lost",
        "bursts",
        "outage",
        "queue",
        "too big",
        "in flight",
        "Mbit/s",
    );
    for (port, counters) in forwarder.air_hosts() {
        let mbit = counters.delivered.bytes as f64 * 8e-6 / seconds;
        text += &format!(
            "{:<12}{:>10}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>10.1}\n",
            port.name,
            counters.offered.packets,
            counters.delivered.packets,
            counters.lost_random.packets,
            counters.lost_burst.packets,
            counters.lost_outage.packets,
            counters.dropped_queue.packets,
            counters.dropped_too_big.packets,
            counters.in_flight().packets,
            mbit,
        );
    }
    for (port, counters) in forwarder.air_hosts() {
        let dropped = [
            ("by the AQM", counters.dropped_aqm),
            ("by the policer", counters.dropped_policer),
        ];
        for (by, count) in dropped.iter().filter(|(_, count)| count.packets > 0) {
            let name = &port.name;
            text += &format!("from {name} dropped {by}: {}\n", count.packets);
        }
        if counters.marked.packets > 0 {
            let name = &port.name;
            text += &format!("from {name} marked (ECN): {}\n", counters.marked.packets);
        }
    }
    let late = forwarder.late();
    text += &format!(
        "handed over {} us late in the mean, {} us at most; {:.0} % of a core\n",
        late.mean().as_micros(),
        late.longest.as_micros(),
        100.0 * cpu_seconds() / seconds
    );
    for ((port, _), end) in forwarder.air_hosts().zip(ends) {
        let name = &port.name;
        if end.unread_packets.is_some_and(|packets| packets > 0) {
            let packets = end.unread_packets.unwrap_or(0);
            text += &format!(
                "warning: {packets} packets of {name} were lost before the link: this machine is too slow for it\n"
            );
        }
        if port.counters.unroutable > 0 {
            text += &format!(
                "note: {} packets of {name} were for no host here\n",
                port.counters.unroutable
            );
        }
        if port.counters.refused > 0 {
            text += &format!(
                "note: {} packets arrived when {name} was gone\n",
                port.counters.refused
            );
        }
    }
    text
}

fn host(port: &Port, counters: &Counters) -> Value {
    let count = |count: Count| json!({"packets": count.packets, "bytes": count.bytes});
    json!({
        "name": port.name,
        "address": port.address,
        "offered": count(counters.offered),
        "delivered": count(counters.delivered),
        "lost_random": count(counters.lost_random),
        "lost_burst": count(counters.lost_burst),
        "lost_outage": count(counters.lost_outage),
        "dropped_queue": count(counters.dropped_queue),
        "dropped_too_big": count(counters.dropped_too_big),
        "dropped_aqm": count(counters.dropped_aqm),
        "dropped_policer": count(counters.dropped_policer),
        "marked": count(counters.marked),
        "in_flight": count(counters.in_flight()),
        "airtime_seconds": counters.airtime.as_secs_f64(),
        "longest_wait_ms": counters.longest_wait.as_secs_f64() * 1e3,
        "unroutable_packets": port.counters.unroutable,
        "refused_packets": port.counters.refused,
    })
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
