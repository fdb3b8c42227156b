//! Samples of `block` edges between machines whose daemons are killed, in any order.

use super::*;

fn start_daemon(fleet: &mut Fleet, at: usize) {
    let command = [["up"], ["join"]][at];
    fleet.daemons[at] = Some(Daemon::start(fleet.command(at, &command)));
    fleet.daemon(at).line(&format!("{} is ready", name(at)));
}

/// Kills one daemon or both, `kills` times, at times that the seed decides.
fn kill_daemons(fleet: &mut Fleet, seed: u64, kills: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let pause = |random: &mut fastrand::Rng, most| {
        std::thread::sleep(Duration::from_millis(random.u64(..most)))
    };
    for _ in 0..kills {
        fleet.await_samples(5 + random.usize(..50));
        pause(&mut random, 20);
        let which: &[usize] = [&[0][..], &[1], &[0, 1], &[1, 0]][random.usize(..4)];
        for &at in which {
            // A daemon leaves its stand-ins, whether it is ended or killed.
            if random.u64(..3) == 0 {
                fleet.output(at, &["down"]);
            }
            fleet.daemons[at].as_mut().unwrap().kill();
            pause(&mut random, 20);
        }
        // The dead one may be back at once, or when the queues are full.
        pause(&mut random, 1000);
        for &at in which {
            start_daemon(fleet, at);
        }
    }
}

/// Samples in slots, or in blocks of shared memory.
fn no_kill_loses_a_sample(seed: u64, bytes: u64) {
    let mut fleet = Fleet::with_own_name(None);
    start_endless(&fleet, &format!("source 1000000 2 {}", bytes / 8));
    let processes = fleet.processes();
    kill_daemons(&mut fleet, seed, 6);
    fleet.await_samples(100);
    assert_eq!(fleet.processes(), processes, "no process has ended");
    let numbers = received(&fleet);
    assert_eq!(
        numbers,
        (0..numbers.len() as u64).collect::<Vec<_>>(),
        "seed {seed}"
    );
    let stopped = fleet.json(0, &["stop", "-d", &fleet.dataflow, "--json"]);
    let stream = &stopped["streams"][0];
    let count = |name: &str| stream[name].as_u64().unwrap();
    assert_eq!(stream["lost"], json!({}), "{stopped:#}");
    assert_eq!(
        count("accepted"),
        count("delivered") + count("not_taken"),
        "{stopped:#}"
    );
    // The report is of the whole run.
    assert!(
        count("delivered") >= numbers.len() as u64 - 1,
        "{} received, {stopped:#}",
        numbers.len()
    );
    let after = received(&fleet).len() as u64;
    assert!(count("delivered") <= after + 8, "{after}, {stopped:#}");
    fleet.check_nothing_left();
}

#[test]
fn killed_daemons_lose_no_sample_and_deliver_none_twice() {
    no_kill_loses_a_sample(1, 8);
}

#[test]
fn killed_daemons_lose_no_sample_in_a_block_and_deliver_none_twice() {
    no_kill_loses_a_sample(2, 80_000);
}

#[test]
fn a_producer_waits_while_its_daemon_is_away() {
    let mut fleet = Fleet::with_own_name(None);
    start_endless(&fleet, "source 400 2 1");
    fleet.daemons[1].as_mut().unwrap().kill();
    // Both queues are full long before that.
    std::thread::sleep(Duration::from_secs(2));
    start_daemon(&mut fleet, 1);
    fleet.await_that("the dataflow ends on both machines", |fleet| {
        NAMES.iter().all(|name| fleet.has_ended(name))
    });
    assert_eq!(received(&fleet), (0..400).collect::<Vec<_>>());
    let stopped = fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    assert!(
        stopped.contains("source/out -> laptop: 400 sent, 400 delivered, none lost"),
        "{stopped}"
    );
    fleet.check_nothing_left();
}

/// The last samples of a process that has ended wait for the daemon.
#[test]
fn a_part_ends_when_the_other_machine_has_its_samples() {
    let mut fleet = Fleet::with_own_name(None);
    start_endless(&fleet, "source 100 10 1");
    fleet.daemons[0].as_mut().unwrap().kill();
    std::thread::sleep(Duration::from_secs(1));
    fleet.daemons[1].as_mut().unwrap().kill();
    std::thread::sleep(Duration::from_secs(1));
    start_daemon(&mut fleet, 1);
    start_daemon(&mut fleet, 0);
    fleet.await_that("the dataflow ends on both machines", |fleet| {
        NAMES.iter().all(|name| fleet.has_ended(name))
    });
    assert_eq!(received(&fleet), (0..100).collect::<Vec<_>>());
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}
