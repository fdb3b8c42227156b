//! A part whose nodes end by themselves.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{Daemon, Fleet, keeper_of, test_node};

/// Starts a node on the robot that runs until the returned file exists.
fn start_until(fleet: &Fleet) -> std::path::PathBuf {
    let file = fleet.folder.path().join("go");
    fleet.start(&json!({
        "machines": {"robot": {}, "edge": {}},
        "nodes": [{"id": "node", "machine": "robot", "path": test_node(),
                   "args": format!("until {}", file.display())},
                  {"id": "other", "machine": "edge", "path": test_node(), "args": "idle"}],
    }));
    fleet.await_that("the node runs", runs_once);
    file
}

fn runs_once(fleet: &Fleet) -> bool {
    fleet.printed(1, "node") == ["runs"]
}

fn keeper(fleet: &Fleet) -> u32 {
    keeper_of(fleet, 1).parse().unwrap()
}

fn await_exit(fleet: &Fleet, keeper: u32) {
    fleet.await_that("the keeper has ended", |_| {
        // Empty for a zombie.
        std::fs::read(format!("/proc/{keeper}/cmdline")).is_ok_and(|it| it.is_empty())
            || !std::path::Path::new(&format!("/proc/{keeper}")).exists()
    });
}

fn await_end(fleet: &Fleet) {
    fleet.await_that("the part has ended", |fleet| fleet.has_ended("robot"));
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_part_that_ends_while_its_daemon_is_dead_does_not_start_again() {
    let mut fleet = Fleet::with_own_name(None);
    let file = start_until(&fleet);
    let keeper = keeper(&fleet);
    fleet.daemons[1].as_mut().unwrap().kill();
    std::fs::write(file, "").unwrap();
    await_exit(&fleet, keeper);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    await_end(&fleet);
    assert!(runs_once(&fleet));
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_part_that_ends_while_its_daemon_hangs_does_not_start_again() {
    let fleet = Fleet::with_own_name(None);
    let file = start_until(&fleet);
    let keeper = keeper(&fleet);
    let daemon = fleet.daemon(1).child.id();
    signal(daemon, Signal::STOP);
    std::fs::write(file, "").unwrap();
    await_exit(&fleet, keeper);
    signal(daemon, Signal::CONT);
    await_end(&fleet);
    assert!(runs_once(&fleet));
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_part_that_is_terminated_while_its_daemon_is_dead_starts_again() {
    let mut fleet = Fleet::with_own_name(None);
    start_until(&fleet);
    let keeper = keeper(&fleet);
    // As when the machine shuts down.
    fleet.daemons[1].as_mut().unwrap().kill();
    signal(keeper, Signal::TERM);
    await_exit(&fleet, keeper);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.await_that("the node runs again", |fleet| {
        fleet.printed(1, "node") == ["runs", "runs"]
    });
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}
