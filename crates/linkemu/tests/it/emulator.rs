//! The emulator with real processes in real namespaces. Without the rights for them, each test
//! prints so and ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nervure_linkemu::{Air, Duplex, Settings};
use serde_json::Value;

use crate::capture::{Packet, read_capture};

/// Whether namespaces can be made here; prints it once if not.
pub fn has_rights() -> bool {
    static RIGHTS: OnceLock<bool> = OnceLock::new();
    *RIGHTS.get_or_init(|| {
        let output = emulator(&["run", "--", "true", "---", "true"]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let missing = ["cannot make namespaces", "cannot make a TUN device", "Operation not permitted"];
        if missing.iter().any(|what| message.contains(what)) {
            eprintln!("SKIPPED: the emulator's tests need the rights to make network namespaces: {message}");
            return false;
        }
        assert!(output.status.success(), "{message}");
        true
    })
}

pub fn emulator(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nervure-linkemu"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn datagrams() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_nervure-linkemu"))
        .with_file_name("examples")
        .join("datagrams")
}

/// A run, with its JSON and captures.
pub struct Recorded {
    pub summary: Value,
    pub sent_by_b: Vec<Packet>,
    pub received_by_a: Vec<Packet>,
    pub stdout: String,
}

impl Recorded {
    /// The counter of `b`'s packets.
    pub fn packets(&self, counter: &str) -> u64 {
        self.summary["hosts"][1][counter]["packets"]
            .as_u64()
            .unwrap()
    }
}

/// Runs `a` and `b` with these options of the emulator.
pub fn record(options: &[&str], a: &[&str], b: &[&str]) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let words = [
        &[
            "run",
            "--json",
            json.to_str().unwrap(),
            "--pcap",
            folder.path().to_str().unwrap(),
        ],
        options,
        &["--"],
        a,
        &["---"],
        b,
    ]
    .concat();
    let output = emulator(&words).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = std::fs::read_to_string(json).unwrap();
    let summary: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(summary["kind"], "summary");
    Recorded {
        summary,
        sent_by_b: read_capture(&folder.path().join("b.pcap")),
        received_by_a: read_capture(&folder.path().join("a.pcap")),
        stdout: String::from_utf8(output.stdout).unwrap(),
    }
}

/// `b` sends `count` datagrams to `a`, where no program listens.
fn record_datagrams(options: &[&str], count: u64, bytes: u64, gap_micros: u64) -> Recorded {
    let program = datagrams();
    let [count, bytes, gap] = [count, bytes, gap_micros].map(|number| number.to_string());
    // An answer "port unreachable" would be a packet too: it goes the other way.
    record(
        options,
        &["true"],
        &[
            program.to_str().unwrap(),
            "send",
            "10.77.0.1",
            &count,
            &bytes,
            &gap,
        ],
    )
}

#[test]
fn the_packets_that_the_model_loses_are_lost() {
    if !has_rights() {
        return;
    }
    let run = record_datagrams(
        &["--loss", "30%", "--seed", "5", "--delay", "2ms"],
        3000,
        200,
        50,
    );
    let settings = Settings {
        loss: 0.3,
        ..Settings::default()
    };
    let mut air = Air::new(Duplex::Full, 5, [settings; 2]);
    for number in 0..3000_u64 {
        air.offer(Duration::from_micros(number), 1, 200, number);
    }
    let expected: BTreeSet<u64> = std::iter::from_fn(|| air.deliver(Duration::from_secs(10)))
        .map(|arrived| arrived.packet)
        .collect();
    let arrived: BTreeSet<u64> = run
        .received_by_a
        .iter()
        .filter_map(Packet::number)
        .collect();
    assert_eq!(run.packets("offered"), 3000);
    let wrong: Vec<_> = arrived.symmetric_difference(&expected).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:?} and perhaps others");
    assert_eq!(run.packets("lost_random"), 3000 - expected.len() as u64);
    assert_eq!(run.packets("delivered"), expected.len() as u64);
}

#[test]
fn rate_and_queue_hold_to_the_byte() {
    if !has_rights() {
        return;
    }
    // 500 packets of 1000 bytes at once: one is sent and 20 kB of it wait at 8 Mbit/s for 20 ms.
    let run = record_datagrams(&["--rate", "8mbit", "--queue", "20000b"], 500, 1000, 0);
    assert_eq!(run.packets("offered"), 500);
    assert_eq!(run.packets("delivered") + run.packets("dropped_queue"), 500);
    assert!(run.packets("dropped_queue") > 0);
    let airtime = run.summary["hosts"][1]["airtime_seconds"].as_f64().unwrap();
    assert!(
        (airtime - run.packets("delivered") as f64 * 1e-3).abs() < 1e-9,
        "{airtime} s"
    );
    let wait = run.summary["hosts"][1]["longest_wait_ms"].as_f64().unwrap();
    assert!((19.0..=20.0).contains(&wait), "{wait} ms");
    let times: Vec<Duration> = run
        .received_by_a
        .iter()
        .filter(|packet| packet.number().is_some())
        .map(|packet| packet.at)
        .collect();
    let closest = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .min()
        .unwrap();
    assert_eq!(
        closest,
        Duration::from_millis(1),
        "a packet takes a millisecond"
    );
}

#[test]
fn packets_take_the_delay_and_little_more() {
    if !has_rights() {
        return;
    }
    let program = datagrams();
    let program = program.to_str().unwrap();
    let send = format!("sleep 0.3; exec {program} send a 300 200 1000");
    let run = record(
        &["--delay", "20ms"],
        &[program, "receive", "3000"],
        &["sh", "-c", &send],
    );
    let words: Vec<&str> = run.stdout.split_whitespace().collect();
    let value = |index: usize| words[index].parse::<u64>().unwrap();
    let (received, least) = (value(1), value(3));
    assert!(
        received > 0 && received <= run.packets("delivered"),
        "{}",
        run.stdout
    );
    // The least of 300: on a loaded machine the others may take longer.
    assert!((20_000..25_000).contains(&least), "{}", run.stdout);
}

#[test]
fn an_interruption_loses_what_is_sent_in_it() {
    if !has_rights() {
        return;
    }
    let run = record_datagrams(&["--outage", "0s:200ms"], 400, 100, 1000);
    assert_eq!(run.packets("offered"), 400);
    assert_eq!(run.packets("delivered") + run.packets("lost_outage"), 400);
    // Packets sent 200 ms after the first one or later came after the interruption.
    let sent: Vec<&Packet> = run
        .sent_by_b
        .iter()
        .filter(|packet| packet.number().is_some())
        .collect();
    let later = sent
        .iter()
        .filter(|packet| packet.at - sent[0].at >= Duration::from_millis(200))
        .count();
    assert!(run.packets("delivered") >= later as u64 && later > 0);
}

#[test]
fn hosts_share_no_memory_and_know_each_other_by_name() {
    if !has_rights() {
        return;
    }
    let script = "touch /dev/shm/mine-$LINKEMU_HOST; \
                  echo $(uname -n) $LINKEMU_ADDRESS $(ls /dev/shm) $(getent hosts base)";
    let output = emulator(&[
        "run",
        "--hosts",
        "robot,base,other",
        "--",
        "sh",
        "-c",
        script,
        "---",
        "sh",
        "-c",
        script,
    ])
    .args(["---", "sh", "-c", script])
    .output()
    .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: BTreeSet<&str> = text.lines().collect();
    let expected = [
        "robot 10.77.0.1 mine-robot 10.77.0.2 base",
        "base 10.77.0.2 mine-base 10.77.0.2 base",
        "other 10.77.0.3 mine-other 10.77.0.2 base",
    ];
    assert_eq!(lines, BTreeSet::from(expected));
}

#[test]
fn a_killed_emulator_leaves_no_process() {
    if !has_rights() {
        return;
    }
    // The commands, and a daemon of one, hold the standard output: it ends when the last of them
    // has.
    let daemon = "trap '' TERM HUP INT; setsid sleep 1000 & echo started; sleep 1000";
    let mut emulator = emulator(&["run", "--", "sh", "-c", daemon, "---", "sh", "-c", daemon])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(emulator.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
    }
    emulator.kill().unwrap();
    emulator.wait().unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_killed_host_ends_the_run() {
    if !has_rights() {
        return;
    }
    let script = "echo started; sleep 1000";
    let mut emulator = emulator(&["run", "--", "sh", "-c", script, "---", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(emulator.stdout.take().unwrap());
    for _ in 0..2 {
        stdout.read_line(&mut String::new()).unwrap();
    }
    let pid = emulator.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let first = children.split_whitespace().next().unwrap();
    assert!(
        Command::new("kill")
            .args(["-9", first])
            .status()
            .unwrap()
            .success()
    );
    // The standard outputs end when no process holds them, the commands of the other host included.
    let mut message = String::new();
    emulator
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut message)
        .unwrap();
    stdout.read_to_string(&mut String::new()).unwrap();
    assert_eq!(emulator.wait().unwrap().code(), Some(1));
    assert!(message.contains("error: a host was killed"), "{message}");
}

#[test]
fn an_end_takes_everything_along() {
    if !has_rights() {
        return;
    }
    // `b` ends; `a`, which does not listen, and the daemon of `b` are killed.
    let (a, b) = (
        "trap '' TERM; while :; do sleep 1000; done",
        "setsid sleep 1000 & exit 0",
    );
    let output = emulator(&[
        "run", "--until", "b", "--", "sh", "-c", a, "---", "sh", "-c", b,
    ])
    .output()
    .unwrap();
    // `output` waits for the end of the standard output, so for the daemon's too.
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_exit_code_reports_a_failed_command() {
    if !has_rights() {
        return;
    }
    let run = |a: &str, b: &str| {
        let output = emulator(&["run", "--", "sh", "-c", a, "---", "sh", "-c", b])
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run("exit 0", "exit 0").0, Some(0));
    let (code, message) = run("exit 0", "exit 7");
    assert_eq!(code, Some(3));
    assert!(
        message.contains("error: the command of b ended with exit code 7"),
        "{message}"
    );
    let (code, message) = run("kill -9 $$", "exit 0");
    assert_eq!(code, Some(3));
    assert!(
        message.contains("error: the command of a was ended by signal 9"),
        "{message}"
    );
}

#[test]
fn a_missing_program_is_reported() {
    if !has_rights() {
        return;
    }
    let output = emulator(&["run", "--", "true", "---", "/no/such/program"])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message.starts_with("error: b: cannot start `/no/such/program`\n"),
        "{message}"
    );
}

#[test]
fn an_unknown_congestion_control_is_refused() {
    if !has_rights() {
        return;
    }
    let output = emulator(&[
        "run",
        "--congestion-control",
        "nonsense",
        "--",
        "true",
        "---",
        "true",
    ])
    .output();
    let Output { status, stderr, .. } = output.unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(
        message.contains("`nonsense`") && message.contains("known: "),
        "{message}"
    );
}

#[test]
fn the_summary_can_go_to_stdout() {
    if !has_rights() {
        return;
    }
    let words = [
        "run",
        "--json",
        "-",
        "--half-duplex",
        "--seed",
        "9",
        "--",
        "true",
        "---",
        "true",
    ];
    let output = emulator(&words).output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["duplex"], "half");
    assert_eq!(summary["seed"], 9);
    assert_eq!(summary["congestion_control"], "cubic");
    assert_eq!(summary["hosts"][0]["exit_code"], 0);
}
