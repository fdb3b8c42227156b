//! `nervure pause` and `nervure resume` of a dataflow on two machines.

use std::{thread::sleep, time::Duration};

use nervure_linkemu::namespaces::Namespaces;

use super::{Daemon, Fleet, received, start_endless};

/// Time for which the sink must receive nothing.
const PAUSE: Duration = Duration::from_millis(700);

fn order(fleet: &Fleet, at: usize, command: &str) {
    fleet.output(at, &[command, "-d", &fleet.dataflow]);
}

/// The state of the dataflow, as both machines show it.
fn state(fleet: &Fleet) -> String {
    let of = |at| {
        let status = fleet.json(at, &["status", "--json", "-d", &fleet.dataflow]);
        status["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(of(0), of(1));
    of(0)
}

/// Waits until the samples sent before the pause have arrived, and checks that none follows.
fn check_standstill(fleet: &Fleet) {
    let mut before = None;
    fleet.await_that("the samples on the way have arrived", |fleet| {
        sleep(PAUSE);
        let now = received(fleet).len();
        before.replace(now) == Some(now)
    });
}

#[test]
fn a_dataflow_pauses_on_all_its_machines() {
    let mut fleet = Fleet::with_own_name(Namespaces::new(1));
    start_endless(&fleet, "source 1000000 1");
    assert_eq!(state(&fleet), "running");
    // By the machine without the coordinator, too.
    order(&fleet, 1, "pause");
    assert_eq!(state(&fleet), "paused");
    for name in ["laptop", "robot"] {
        assert_eq!(fleet.actual(name).unwrap()["is_paused"], true);
    }
    check_standstill(&fleet);
    // The daemon that is killed finds the pause again.
    fleet.daemons[1].as_mut().unwrap().kill();
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    fleet.await_that("the daemon has its keeper again", |fleet| {
        fleet
            .actual("robot")
            .is_some_and(|run| run["is_paused"] == true)
    });
    check_standstill(&fleet);
    order(&fleet, 0, "resume");
    assert_eq!(state(&fleet), "running");
    fleet.await_samples(100);
    order(&fleet, 0, "stop");
    let numbers = received(&fleet);
    let expected: Vec<u64> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
    fleet.check_nothing_left();
}

#[test]
fn a_paused_dataflow_can_be_stopped_on_all_its_machines() {
    let fleet = Fleet::with_own_name(None);
    start_endless(&fleet, "source 1000000 1");
    order(&fleet, 0, "pause");
    order(&fleet, 0, "stop");
    fleet.check_nothing_left();
}
