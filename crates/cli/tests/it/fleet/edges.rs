//! Samples over the link, and daemons that end meanwhile.

use super::*;

fn every_sample_crosses(fleet: &Fleet) {
    let started = fleet.start(&numbers("source 300 1 10000"));
    assert!(
        started.contains("two runs on laptop (edge), robot"),
        "{started}"
    );
    fleet.await_that("the dataflow ends by itself on both machines", |fleet| {
        NAMES.iter().all(|name| {
            fleet
                .actual(name)
                .is_some_and(|run| run["state"]["is"] == "ended")
        })
    });
    assert_eq!(
        received(fleet),
        (0..300).collect::<Vec<_>>(),
        "{:#?}",
        fleet.printed(0, "sink")
    );
    let stopped = fleet.output(0, &["stop", "-d", "two"]);
    assert!(
        stopped.contains("source/out -> laptop: 300 sent, 300 delivered, none lost"),
        "{stopped}"
    );
    fleet.check_nothing_left();
}

#[test]
fn two_machines_on_loopback_run_one_dataflow() {
    every_sample_crosses(&Fleet::new(None));
}

#[test]
fn two_machines_in_namespaces_run_one_dataflow() {
    if let Some(namespaces) = Namespaces::new(1) {
        every_sample_crosses(&Fleet::new(Some(namespaces)));
    }
}

#[test]
fn structs_with_a_schema_arrive_as_they_were_sent() {
    let fleet = Fleet::new(None);
    let file = fleet.file(&json!({
        "machines": {"robot": {}, "laptop": {}},
        "nodes": [
            {"id": "frames", "machine": "robot", "path": test_node(), "args": "frames", "outputs": ["frame"]},
            {"id": "sink", "machine": "laptop", "path": test_node(), "args": "frame-sink",
             "inputs": {"frame": {"source": "frames/frame", "qos": {"traffic_class": "bulk", "lifespan": "1s"}}}},
        ],
    }));
    fleet.output(0, &["start", file.to_str().unwrap()]);
    fleet.await_that("frames arrive", |fleet| fleet.printed(0, "sink").len() > 3);
    fleet.output(0, &["stop", "-d", "two"]);
    let printed = fleet.printed(0, "sink");
    assert_eq!(
        printed[0], "1.5 [20, 30, 3] 18000 [\"cup\"] true",
        "{printed:?}"
    );
    fleet.check_nothing_left();
}

#[test]
fn a_killed_daemon_is_missed_by_no_node_and_its_successor_carries_on() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let processes = fleet.processes();
    fleet.daemons[1].as_mut().unwrap().kill();
    // The robot's next daemon needs no invitation.
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    fleet.await_samples(100);
    assert_eq!(
        fleet.processes(),
        processes,
        "no process has ended or was started"
    );
    let numbers = received(&fleet);
    assert!(
        numbers.is_sorted_by(|one, other| one < other),
        "nothing arrives twice: {numbers:?}"
    );
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn the_end_of_a_topic_is_known_to_the_next_daemon_of_its_consumer() {
    let mut fleet = Fleet::with_own_name(None);
    let mut dataflow = numbers("source 30 1 10");
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes[1]["inputs"]["more"] = json!("endless/out");
    nodes.push(json!({"id": "endless", "machine": "robot", "path": test_node(), "args": "source 1000000 5 100", "outputs": ["out"]}));
    fleet.start(&dataflow);
    let closed = |fleet: &Fleet| {
        let lines = fleet.printed(0, "sink").into_iter();
        lines.filter(|line| line == "INPUT_CLOSED in").count()
    };
    fleet.await_that("the input is closed", |fleet| closed(fleet) == 1);
    assert_eq!(received(&fleet).len(), 30);
    fleet.daemons[0].as_mut().unwrap().kill();
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.await_that("both machines are seen", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        let parts = list["dataflows"].as_array().unwrap();
        let is_seen = |machine: &&str| {
            let mut parts = parts.iter();
            parts.any(|part| part["machine"] == **machine && part["error"].is_null())
        };
        NAMES.iter().all(is_seen)
    });
    // A consumer that begins again learns of it, too.
    fleet.output(0, &["node", "restart", &format!("{}:sink", fleet.dataflow)]);
    fleet.await_that("the input is closed again", |fleet| closed(fleet) == 2);
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_machine_that_boots_without_the_coordinator_starts_what_it_ran() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    // A power failure of both; only the robot boots.
    for daemon in fleet.daemons.iter_mut().flatten() {
        daemon.kill();
    }
    for pid in fleet.processes() {
        kill(pid);
    }
    fleet.await_that("all processes are gone", |fleet| {
        fleet.processes().is_empty()
    });
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.await_that("the robot's part runs again", |fleet| {
        fleet.processes().iter().any(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("source\u{0}1000000")
        })
    });
    // The coordinator is back, and the dataflow runs on both machines as before.
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.await_samples(20);
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_role_without_a_machine_of_its_name_takes_one_with_its_labels() {
    let mut fleet = Fleet::new(None);
    let mut dataflow = numbers("source 10 1 1");
    dataflow["machines"]["edge"] = json!({"labels": {"gpu": "true"}});
    let file = fleet.file(&dataflow);
    for (label, reason) in [
        (None, "`laptop` has no label `gpu`"),
        (
            Some("gpu=false"),
            "`laptop` has the label `gpu=false`, not `gpu=true`",
        ),
        (Some("gpu=true"), ""),
    ] {
        if let Some(label) = label {
            fleet.daemons[0].as_mut().unwrap().kill();
            let up = fleet.command(0, &["up", "--label", label]);
            fleet.daemons[0] = Some(Daemon::start(up));
            fleet.daemon(0).line("laptop is ready");
            await_label(&fleet, label);
        }
        let start = fleet.run(&mut fleet.command(0, &["start", file.to_str().unwrap()]));
        if reason.is_empty() {
            let text = String::from_utf8_lossy(&start.stdout).into_owned();
            assert!(text.contains("runs on laptop (edge), robot"), "{start:?}");
            continue;
        }
        let text = String::from_utf8_lossy(&start.stderr).into_owned();
        assert_eq!(start.status.code(), Some(2), "{text}");
        let expected = format!(
            "machine `edge` with sink: no machine has its labels: {reason}; `robot` is bound to `robot` already"
        );
        assert!(text.contains(&expected), "{text}");
    }
    fleet.output(0, &["stop", "-d", "two"]);
    // The labels of a machine that has joined are kept, too.
    for arguments in [&["join", "--label", "arm=left"][..], &["join"]] {
        fleet.daemons[1].as_mut().unwrap().kill();
        fleet.daemons[1] = Some(Daemon::start(fleet.command(1, arguments)));
        fleet.daemon(1).line("robot is ready");
        await_label(&fleet, "arm=left");
        let pairing = std::fs::read_to_string(fleet.state(1).join("machine.json")).unwrap();
        assert!(pairing.contains("left"), "{pairing}");
    }
    fleet.check_nothing_left();
}

#[test]
fn a_role_takes_a_machine_that_has_its_resources() {
    let fleet = Fleet::new(None);
    let start = |resources: Value, bind: &[&str]| {
        let mut dataflow = numbers("source 10 1 1");
        dataflow["machines"]["edge"] = json!({"resources": resources});
        let file = fleet.file(&dataflow);
        let start = [&["start", file.to_str().unwrap()], bind].concat();
        let output = fleet.run(&mut fleet.command(0, &start));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout) + &text(output.stderr),
        )
    };
    for (resources, bind, reason) in [
        (
            json!({"cpus": 4096}),
            &[][..],
            "no machine has its resources: `laptop` has ",
        ),
        (
            json!({"memory": "900TiB", "cpus": 1}),
            &["--bind", "edge=laptop"],
            "MiB of memory, not 943718400",
        ),
        (
            json!({"gpus": 4096}),
            &["--bind", "edge=laptop"],
            "not 4096",
        ),
    ] {
        let (code, text) = start(resources, bind);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("machine `edge` with sink: "), "{text}");
        assert!(text.contains(reason), "{text}");
    }
    let (code, text) = start(json!({"cpus": 1, "memory": "1MiB"}), &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("runs on laptop (edge), robot"), "{text}");
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

fn await_label(fleet: &Fleet, label: &str) {
    let (name, text) = label.split_once('=').unwrap();
    fleet.await_that("the label is reported", |fleet| {
        let list = fleet.json(0, &["machine", "list", "--json"]);
        let mut machines = list["machines"].as_array().unwrap().iter();
        machines.any(|machine| machine["actual"]["labels"][name] == *text)
    });
}

#[test]
fn what_cannot_be_placed_or_prepared_is_named_and_nothing_starts() {
    let fleet = Fleet::new(None);
    let file = fleet.file(&numbers("source 10 1 1"));
    let refused = fleet.run(&mut fleet.command(0, &["start", file.to_str().unwrap()]));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains(
            "machine `edge` with sink: no machine `edge` has joined; these have: laptop, robot"
        ),
        "{text}"
    );

    // A program by a variable of the command's environment, which the daemons lack. The first machine
    // to fail is named.
    let mut dataflow = numbers("source 10 1 1");
    dataflow["nodes"][0]["path"] = json!("${PROGRAM_OF_TEST}");
    let file = fleet.file(&dataflow);
    let start = ["start", file.to_str().unwrap(), "--bind", "edge=laptop"];
    let mut start = fleet.command(0, &start);
    let refused = fleet.run(start.env("PROGRAM_OF_TEST", test_node()));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains("nothing of it runs")
            && ["robot: ", "laptop: "]
                .iter()
                .any(|machine| text.contains(&format!("caused by: {machine}error[missing-file]"))),
        "{text}"
    );
    fleet.check_nothing_left();
}
