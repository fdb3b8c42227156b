//! An instance of a dataflow for each of several machines.

use super::*;

/// Three machines, and a name for the dataflow that no other fleet of this host has.
pub fn three_machines() -> Fleet {
    let mut fleet = Fleet::with_own_name(None);
    fleet.join(2, "robot");
    for name in [name(1), name(2)] {
        fleet.await_that("it can be reached", |fleet| is_reachable(fleet, &name));
    }
    fleet
}

fn is_reachable(fleet: &Fleet, machine: &str) -> bool {
    let list = fleet.json(0, &["machine", "list", "--json"]);
    let mut machines = list["machines"].as_array().unwrap().iter();
    machines.any(|one| one["name"] == machine && one["reachable"] == true)
}

/// The arguments that start an instance for each of these machines, with the sink on the laptop.
pub fn start_on<'a>(fleet: &'a Fleet, file: &'a Path, robots: &'a str) -> [&'a str; 8] {
    let file = file.to_str().unwrap();
    let name = &fleet.dataflow;
    [
        "start",
        file,
        "--bind",
        "edge=laptop",
        "--bind",
        robots,
        "--name",
        name,
    ]
}

/// The instances that run, with their machines.
pub fn instances(fleet: &Fleet) -> Vec<String> {
    let list = fleet.json(0, &["list", "--json"]);
    let parts = list["dataflows"].as_array().unwrap().iter();
    let text = |part: &Value| {
        let name = part["dataflow"].as_str()?.strip_prefix(&fleet.dataflow)?;
        Some(format!("{name} on {}", part["machine"].as_str()?))
    };
    let mut all: Vec<_> = parts.filter_map(text).collect();
    all.sort();
    all
}

/// The numbers that the sink of an instance has printed.
pub fn received_of(fleet: &mut Fleet, instance: &str) -> Vec<u64> {
    let name = fleet.dataflow.clone();
    fleet.dataflow = format!("{name}@{instance}");
    let numbers = received(fleet);
    fleet.dataflow = name;
    numbers
}

pub fn await_more(fleet: &mut Fleet, instance: &str) {
    let before = received_of(fleet, instance).len();
    let until = Instant::now() + WAIT_LIMIT;
    while received_of(fleet, instance).len() < before + 20 {
        assert!(Instant::now() < until, "{instance}: no more samples");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_machine_has_an_instance_with_edges_of_its_own() {
    let mut fleet = three_machines();
    let file = fleet.file(&numbers("source 1000000 5 100"));
    let started = fleet.output(0, &start_on(&fleet, &file, "robot=robot,r2"));
    let name = fleet.dataflow.clone();
    for line in [
        format!("{name}@robot runs on laptop (edge), robot\n"),
        format!("{name}@r2 runs on laptop (edge), r2 (robot)\n"),
        format!("stop all of them with `nervure stop -d {name}`"),
    ] {
        assert!(started.contains(&line), "{started}");
    }
    let all = [
        "@r2 on laptop",
        "@r2 on r2",
        "@robot on laptop",
        "@robot on robot",
    ];
    assert_eq!(instances(&fleet), all);
    for instance in ["robot", "r2"] {
        await_more(&mut fleet, instance);
        // Each sink gets all samples of its own source, and none of the other one.
        let numbers = received_of(&mut fleet, instance);
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    }
    let of_r2 = format!("{name}@r2");
    let status = fleet.json(1, &["status", "--json", "-d", &of_r2]);
    assert_eq!(node_of(&status, "source")["machine"], "r2");
    let (code, text) = refused(&fleet, 0, &start_on(&fleet, &file, "robot=r2..r2"));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains(&format!("there is a dataflow `{of_r2}`")),
        "{text}"
    );
    // By the name of the dataflow all of them are meant.
    let paused = fleet.output(0, &["pause", "-d", &name]);
    assert_eq!(paused.matches("is paused").count(), 2, "{paused}");
    fleet.output(0, &["resume", "-d", &of_r2]);
    await_more(&mut fleet, "r2");
    let stopped = fleet.output(0, &["stop", "-d", &of_r2]);
    assert!(stopped.contains("source/out -> laptop"), "{stopped}");
    assert_eq!(instances(&fleet), ["@robot on laptop", "@robot on robot"]);
    fleet.output(0, &["resume", "-d", &name]);
    await_more(&mut fleet, "robot");
    let file = fleet.file(&numbers("source 1000000 5 100"));
    fleet.output(0, &start_on(&fleet, &file, "robot=r2..r2"));
    let stopped = fleet.output(0, &["stop", "-d", &name]);
    assert_eq!(stopped.matches("has stopped").count(), 2, "{stopped}");
    fleet.check_nothing_left();
}

#[test]
fn machines_that_are_missing_are_named_at_once_and_nothing_starts() {
    let mut fleet = three_machines();
    fleet.daemons[2].as_mut().unwrap().kill();
    fleet.await_that("it is unreachable", |fleet| !is_reachable(fleet, "r2"));
    let file = fleet.file(&numbers("source 10 1"));
    let (code, text) = refused(&fleet, 0, &start_on(&fleet, &file, "robot=robot,r2..r4"));
    assert_eq!(code, Some(2), "{text}");
    for problem in [
        "`r2` cannot be reached",
        "machine `robot` with source: `r3` has not joined",
        "machine `robot` with source: `r4` has not joined",
    ] {
        assert!(text.contains(problem), "{text}");
    }
    assert!(instances(&fleet).is_empty() && fleet.actual("robot").is_none());
    let (code, text) = refused(&fleet, 0, &start_on(&fleet, &file, "robot=r4..r2"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("it ends before it begins"), "{text}");
}
