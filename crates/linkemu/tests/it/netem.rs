//! The emulator compared with `tc netem`, if the kernel has it.

use std::process::Command;

use crate::capture::Packet;
use crate::emulator::{datagrams, has_rights, record};

const COUNT: u64 = 4000;

/// Lets `b` send over a perfect emulated link, on which netem acts like the emulator in the other
/// run.
fn sent_through(netem: Option<&str>, options: &[&str]) -> (u64, u64) {
    let program = datagrams();
    let program = program.to_str().unwrap();
    let rules = netem.map_or(String::new(), |rules| {
        format!("tc qdisc replace dev link0 root netem {rules} && ")
    });
    let send = format!("{rules} sleep 0.3 && exec {program} send a {COUNT} 200 200");
    let run = record(options, &[program, "receive", "3000"], &["sh", "-c", &send]);
    let least = run
        .stdout
        .split_whitespace()
        .nth(3)
        .unwrap()
        .parse()
        .unwrap();
    (
        run.received_by_a
            .iter()
            .filter(|packet| Packet::number(packet).is_some())
            .count() as u64,
        least,
    )
}

fn kernel_has_netem() -> bool {
    let tried = Command::new(env!("CARGO_BIN_EXE_nervure-linkemu"))
        .args([
            "run", "--", "true", "---", "tc", "qdisc", "replace", "dev", "link0", "root", "netem",
            "loss", "1%",
        ])
        .output()
        .unwrap();
    tried.status.success()
}

#[test]
fn loss_and_delay_are_those_of_netem() {
    if !has_rights() {
        return;
    }
    if !kernel_has_netem() {
        eprintln!("SKIPPED: the comparison with netem needs `tc` and a kernel with sch_netem");
        return;
    }
    let (theirs, their_least) = sent_through(Some("loss 20% delay 10ms limit 10000"), &[]);
    let (ours, our_least) = sent_through(None, &["--loss", "20%", "--delay", "10ms"]);
    // Six deviations of a difference of two binomial counts.
    let deviation = (2.0 * COUNT as f64 * 0.2 * 0.8).sqrt();
    assert!(
        (theirs as f64 - ours as f64).abs() < 6.0 * deviation,
        "netem {theirs}, emulator {ours}"
    );
    assert!(
        their_least.abs_diff(our_least) < 5000,
        "netem {their_least} us, emulator {our_least} us"
    );
}
