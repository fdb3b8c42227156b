//! A fleet on a virtual clock, with seeds: the store, the daemons and the leases as they are, on a
//! network that delays, loses and is interrupted, with processes that are killed and disks that are
//! full or slow.
//!
//! Held all along: a run has one keeper at a time on a machine, and none that its machine was not to run; a
//! run that has ended does not start again; the disk of a machine does not go back to an older state; no
//! node with `on_partition: stop` runs on a machine whose lease has ended, where its daemon lives. In the
//! end, the desired state is reached, reported, and on disk.

mod chance;
mod client;
mod coordinator;
#[path = "../desired/mod.rs"]
mod desired;
mod machine;
mod operator;
mod world;

use std::time::Duration;

use world::{Delays, Traffic, World};

/// Number of seeds, or `$SEEDS`; from the first one, or `$FIRST_SEED`.
fn seeds(number: u64) -> std::ops::Range<u64> {
    let variable = |name, default| std::env::var(name).map_or(default, |it| it.parse().unwrap());
    let first = variable("FIRST_SEED", 0);
    first..first + variable("SEEDS", number)
}

/// Later seeds that found a defect.
const FOUND: [u64; 5] = [2359, 38_420, 54_034, 57_379, 82_993];

#[test]
fn a_fleet_does_what_is_desired_through_crashes_partitions_and_full_disks() {
    let delays = Delays {
        most_millis: 60,
        rarely_millis: 2000,
        lost: 5,
    };
    let mut starts = 0;
    for seed in seeds(2000).chain(FOUND) {
        let mut world = World::new(seed, 3, delays);
        world.live();
        starts += u64::from(world.starts);
    }
    assert!(
        starts > 3 * seeds(2000).count() as u64,
        "{starts} starts: it tests little"
    );
}

/// As before, with orders on the machines themselves that stop and pause runs: these hold, whatever the
/// coordinator desires.
#[test]
fn orders_of_the_users_of_machines_hold_through_crashes_partitions_and_full_disks() {
    let delays = Delays {
        most_millis: 60,
        rarely_millis: 2000,
        lost: 5,
    };
    for seed in seeds(1000) {
        let mut world = World::new(seed, 3, delays);
        world.has_users = true;
        world.live();
    }
}

#[test]
fn a_store_that_comes_back_from_a_backup_starts_nothing_old_ends_nothing_and_takes_new_orders() {
    let delays = Delays {
        most_millis: 60,
        rarely_millis: 2000,
        lost: 5,
    };
    for seed in seeds(1000) {
        World::new(seed, 3, delays).live_through_a_restore();
    }
}

/// The sum of the traffic of some machines, and the most of one.
fn added(before: &[Traffic], after: &[Traffic]) -> (Traffic, Traffic) {
    let (mut sum, mut most) = (Traffic::default(), Traffic::default());
    for (before, after) in before.iter().zip(after) {
        let calls = after.calls - before.calls;
        let bytes = after.bytes - before.bytes;
        let renewals = after.renewals - before.renewals;
        sum.calls += calls;
        sum.bytes += bytes;
        sum.renewals += renewals;
        most.calls = most.calls.max(calls);
        most.bytes = most.bytes.max(bytes);
        most.renewals = most.renewals.max(renewals);
    }
    (sum, most)
}

/// A thousand machines join, rest, and a hundred of them start a thousand nodes. Each message is
/// counted: calls of the coordinator and their answers, renewals of leases and their confirmations.
/// `--nocapture` shows the figures of `docs/reference/fleet.md`.
#[test]
fn a_hundred_of_a_thousand_machines_start_a_thousand_nodes_with_a_bounded_number_of_messages() {
    const MACHINES: usize = 1000;
    const OF_DATAFLOW: usize = 100;
    const NODES: usize = 10;
    let delays = Delays {
        most_millis: 10,
        rarely_millis: 10,
        lost: 0,
    };
    let mut world = World::new(7, MACHINES, delays);
    world.nodes = NODES;
    let seconds = Duration::from_secs;

    // They join within ten seconds.
    for at in 0..MACHINES {
        world.run_to(world.now + Duration::from_millis(10));
        world.start_daemon(at);
    }
    world.run_to(seconds(15));
    for machine in &world.machines {
        let daemon = machine.daemon.as_ref().unwrap();
        assert_eq!(daemon.peers.len(), MACHINES);
        assert!(world.coordinator.grants.is_reachable(&machine.name));
    }
    let joined = world.traffic.clone();
    let (sum, most) = added(&vec![Traffic::default(); MACHINES], &joined);
    println!("joining: {sum:?} in all, at most {most:?}");
    // Ten answers of a watch in a second, and the address of each machine.
    assert!(most.calls < 450 && most.bytes < 600_000, "{most:?}");

    world.run_to(seconds(75));
    let rested = world.traffic.clone();
    let (sum, most) = added(&joined, &rested);
    println!("a minute of rest: {sum:?} in all, at most {most:?}");
    // Three watches that end after 30 s, one refused call in 10 s, a renewal each 300 ms.
    assert!(most.calls <= 2 * (3 * 3 + 7), "{most:?}");
    assert!(most.renewals <= 2 * 201, "{most:?}");

    let begin = world.now;
    world.begin_start("run", 0..OF_DATAFLOW);
    while world.operator.started_at.is_none() && world.now < begin + seconds(60) {
        world.run_to(world.now + Duration::from_millis(1));
    }
    let prepared = world.operator.prepared_at.expect("all are prepared") - begin;
    let started = world.operator.started_at.expect("all have started") - begin;
    let (sum, most) = added(&rested[1..OF_DATAFLOW], &world.traffic[1..OF_DATAFLOW]);
    // The operator's machine follows the reports of the others.
    let (_, follower) = added(&rested[..1], &world.traffic[..1]);
    let (_, others) = added(&rested[OF_DATAFLOW..], &world.traffic[OF_DATAFLOW..]);
    let command = world.operator.traffic;
    println!(
        "start: prepared after {prepared:?}, started after {started:?}; {sum:?} in all, at most {most:?}; \
         of the operator's machine {follower:?}; of another machine at most {others:?}; of the command {command:?}"
    );
    assert_eq!(world.starts as usize, OF_DATAFLOW);
    assert!(started < seconds(10), "{started:?} of simulated time");
    // Two orders, and a report for each change of a state, of which many share one call.
    assert!(most.calls <= 2 * (2 + 4 + NODES as u64 + 4), "{most:?}");
    assert!(others.calls <= 8, "{others:?}");
    let most_of_follower = most.calls + 20 * (started.as_secs() + 1);
    assert!(follower.calls <= most_of_follower, "{follower:?}");
    // Two calls for each order, and watches of reports.
    let reports = (OF_DATAFLOW * (NODES + 5)) as u64;
    assert!(
        command.calls <= 2 * (4 * OF_DATAFLOW as u64 + reports),
        "{command:?}"
    );
}
