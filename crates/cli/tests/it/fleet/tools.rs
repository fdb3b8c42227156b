//! Commands for dataflows of other machines.

use super::*;
use crate::serve::Server;

fn every_command_works(fleet: &Fleet) {
    start_counting(fleet);
    for at in [0, 1] {
        let list = fleet.json(at, &["list", "--json"]);
        let parts = list["dataflows"].as_array().unwrap().iter();
        let parts = parts.filter(|part| part["dataflow"] == fleet.dataflow.as_str());
        let machines: Vec<_> = parts.map(|part| part["machine"].clone()).collect();
        assert_eq!(machines, ["laptop", "robot"], "{list:#}");

        // One table: each node on its machine, and no stand-in.
        let status = fleet.json(at, &["status", "-d", &fleet.dataflow, "--json"]);
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status:#}");
        let (source, sink) = (node_of(&status, "source"), node_of(&status, "sink"));
        assert_eq!(
            (&source["machine"], &source["state"]),
            (&json!("robot"), &json!("runs")),
            "{status:#}"
        );
        assert_eq!(
            (&sink["machine"], &sink["state"]),
            (&json!("laptop"), &json!("runs")),
            "{status:#}"
        );

        // Samples over the link, by the reports of both machines, and their latency.
        let [stream] = status["streams"].as_array().unwrap().as_slice() else {
            panic!("{status:#}")
        };
        assert_eq!(
            (&stream["topic"], &stream["machine"]),
            (&json!("source/out"), &json!("laptop")),
            "{stream:#}"
        );
        let (sent, delivered) = (stream["accepted"].as_u64(), stream["delivered"].as_u64());
        assert!(delivered > Some(0) && delivered <= sent, "{stream:#}");
        assert_eq!(stream["lost"], json!({}), "{stream:#}");
        let latency = |field: &str| stream["latency"][field].as_u64();
        // On a busy machine it is within the error of the clocks, and may be 0.
        assert!(
            latency("p50_nanos").is_some() && latency("p50_nanos") <= latency("max_nanos"),
            "{stream:#}"
        );
        assert!(latency("error_nanos") > Some(0), "{stream:#}");

        let topics = fleet.json(at, &["topic", "list", "-d", &fleet.dataflow, "--json"]);
        let topics = topics["topics"].as_array().unwrap();
        assert_eq!(topics.len(), 1, "{topics:#?}");
        let echoed = fleet.json(
            at,
            &[
                "topic",
                "echo",
                "-d",
                &fleet.dataflow,
                "source/out",
                "-n",
                "3",
                "--json",
            ],
        );
        assert_eq!(echoed["topic"], "source/out", "{echoed:#}");
        let rate = fleet.json(
            at,
            &[
                "topic",
                "hz",
                &format!("{}:source/out", fleet.dataflow),
                "-n",
                "2",
                "--interval",
                "500ms",
                "--json",
            ],
        );
        assert!(rate["samples"].as_u64().unwrap() > 1, "{rate:#}");

        let top = fleet.json(
            at,
            &[
                "top",
                "-d",
                &fleet.dataflow,
                "-n",
                "3",
                "--interval",
                "600ms",
                "--json",
            ],
        );
        for node in top["nodes"].as_array().unwrap() {
            assert!(
                node["resident_bytes"]
                    .as_u64()
                    .is_some_and(|bytes| bytes > 0),
                "{top:#}"
            );
        }
        assert!(top["link_bytes"].as_u64().unwrap() > 0, "{top:#}");
        let received = |edge: &Value| edge["received"].as_u64().unwrap() > 0;
        assert!(
            top["edges"].as_array().unwrap().iter().all(received),
            "{top:#}"
        );

        let set = [
            "param",
            "set",
            &format!("{}:source", fleet.dataflow),
            "level",
            if at == 0 { "4" } else { "5" },
        ];
        fleet.output(at, &set);
        let got = fleet.output(
            1 - at,
            &[
                "param",
                "get",
                &format!("{}:source", fleet.dataflow),
                "level",
            ],
        );
        assert_eq!(got, if at == 0 { "4\n" } else { "5\n" });
        let params = fleet.json(at, &["param", "list", "-d", &fleet.dataflow, "--json"]);
        assert_eq!(params["params"].as_array().unwrap().len(), 1, "{params:#}");

        let logs = fleet.output(
            at,
            &[
                "logs",
                "-d",
                &fleet.dataflow,
                "--node",
                "sink",
                "--grep",
                "^in 7$",
            ],
        );
        // The source begins again when it is restarted, below.
        assert_eq!(logs.lines().count(), 1 + at, "{logs}");

        fleet.output(at, &["holders", "-d", &fleet.dataflow]);
        let explained = fleet.output(at, &["explain", "-d", &fleet.dataflow]);
        assert!(explained.contains("nothing was lost"), "{explained}");
        let lint = ["lint", "-d", &fleet.dataflow, "--window", "1s"];
        let linted = fleet.run(&mut fleet.command(at, &lint));
        assert!(matches!(linted.status.code(), Some(0 | 3)));

        let before = node_of(&status, "source")["pid"].clone();
        fleet.output(
            at,
            &["node", "restart", &format!("{}:source", fleet.dataflow)],
        );
        let status = fleet.json(at, &["status", "-d", &fleet.dataflow, "--json"]);
        let source = node_of(&status, "source");
        assert_ne!(source["pid"], before, "{status:#}");
    }
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn every_command_works_from_either_machine_on_loopback() {
    every_command_works(&Fleet::with_own_name(None));
}

#[test]
fn every_command_works_from_either_machine_in_namespaces() {
    if let Some(namespaces) = Namespaces::new(1) {
        every_command_works(&Fleet::with_own_name(Some(namespaces)));
    }
}

#[test]
fn metrics_of_all_machines_are_served_on_each() {
    let fleet = Fleet::with_own_name(None);
    start_counting(&fleet);
    for (at, other) in [(0, "robot"), (1, "laptop")] {
        let server = Server::start(fleet.command(at, &["serve", "--listen", "127.0.0.1:0"]));
        let metrics = server.metrics();
        assert_eq!(metrics.value("nervure_daemon_up", &[]), Some(1.0));
        let link = [("machine", other)];
        let reachable = metrics.value("nervure_machine_reachable", &link);
        assert_eq!(reachable, Some(1.0), "{metrics:#?}");
        let clock = || {
            let value = |name: &str| server.metrics().value(name, &[("machine", "robot")]);
            value("nervure_machine_clock_offset_seconds")
                .zip(value("nervure_machine_clock_offset_error_seconds"))
        };
        fleet.await_that("the clock of the robot is known", |_| clock().is_some());
        // Both are this host's: the true offset is 0.
        assert!(clock().is_some_and(|(offset, error)| offset.abs() <= error));
        for name in [
            "nervure_link_round_trip_seconds",
            "nervure_link_rate_bytes_per_second",
            "nervure_link_sent_bytes_total",
            "nervure_link_received_bytes_total",
        ] {
            let value = metrics.value(name, &link);
            assert!(value.is_some_and(|value| value > 0.0), "{name}: {value:?}");
        }
        for (node, machine) in [("source", "robot"), ("sink", "laptop")] {
            let labels = [
                ("dataflow", fleet.dataflow.as_str()),
                ("machine", machine),
                ("node", node),
            ];
            let state = [&labels[..], &[("state", "runs")]].concat();
            let state = metrics.value("nervure_node_state", &state);
            assert_eq!(state, Some(1.0), "{node}: {metrics:#?}");
            let memory = metrics.value("nervure_node_resident_memory_bytes", &labels);
            assert!(memory.is_some_and(|bytes| bytes > 0.0), "{metrics:#?}");
        }
        let received = metrics.value(
            "nervure_edge_received_samples_total",
            &[
                ("dataflow", &fleet.dataflow),
                ("machine", "laptop"),
                ("topic", "source/out"),
                ("input", "sink/in"),
            ],
        );
        assert!(received.is_some_and(|count| count > 0.0), "{metrics:#?}");
        let stream = [
            ("dataflow", fleet.dataflow.as_str()),
            ("machine", "laptop"),
            ("topic", "source/out"),
        ];
        let median = [&stream[..], &[("quantile", "0.5")]].concat();
        for (name, labels) in [
            ("nervure_stream_delivered_samples_total", &stream[..]),
            ("nervure_stream_latency_error_seconds", &stream),
        ] {
            let value = metrics.value(name, labels);
            assert!(
                value.is_some_and(|value| value > 0.0),
                "{name}: {metrics:#?}"
            );
        }
        let median = metrics.value("nervure_stream_latency_seconds", &median);
        assert!(median.is_some(), "{metrics:#?}");
    }
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn an_echo_that_is_not_shown_fetches_nothing() {
    let fleet = Fleet::with_own_name(None);
    let mut dataflow = numbers("source 1000000 5 100");
    dataflow["nodes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "other", "machine": "robot", "path": test_node(), "args": "source 1000000 2 100", "outputs": ["out"]}));
    fleet.start(&dataflow);
    // Both daemons are connected then.
    fleet.await_that("samples arrive", |fleet| received(fleet).len() > 20);
    // Nothing reads its output, so the pipe fills up.
    let mut echo = fleet
        .command(
            0,
            &[
                "topic",
                "echo",
                &format!("{}:other/out", fleet.dataflow),
                "--json",
            ],
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Samples that were sent and received on the edge of the observer.
    let counted = || {
        let top = fleet.json(
            1,
            &[
                "top",
                "-d",
                &fleet.dataflow,
                "-n",
                "1",
                "--interval",
                "600ms",
                "--json",
            ],
        );
        let edges = top["edges"].as_array().unwrap().clone();
        let edge = edges.iter().find(|edge| edge["topic"] == "other/out");
        edge.map(|edge| {
            (
                edge["sent"].as_u64().unwrap(),
                edge["received"].as_u64().unwrap(),
            )
        })
    };
    let mut last = None;
    fleet.await_that("nothing more is fetched, while samples are sent", |_| {
        let now = counted();
        let before = last.replace(now);
        match (before.flatten(), now) {
            (Some((sent, received)), Some((sent_now, received_now))) => {
                received > 20 && received == received_now && sent_now > sent + 100
            }
            _ => false,
        }
    });
    let _ = (echo.kill(), echo.wait());
    // The observer goes with its command.
    fleet.await_that("the topic has no observer", |_| counted().is_none());
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_dataflow_that_runs_on_one_machine_alone_is_stopped_from_another() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    let file = fleet.file(&json!({
        "nodes": [{"id": "source", "path": test_node(), "args": "source 1000000 5 100", "outputs": ["out"]}],
    }));
    fleet.output(
        1,
        &["run", "--detach", "--name", "alone", file.to_str().unwrap()],
    );
    fleet.await_that("it is seen from the laptop", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        let dataflows = list["dataflows"].as_array().unwrap();
        dataflows
            .iter()
            .any(|one| (&one["dataflow"], &one["machine"]) == (&json!("alone"), &json!("robot")))
    });
    let stopped = fleet.output(0, &["stop", "-d", "alone"]);
    assert_eq!(stopped, "alone has stopped\n");
    fleet.check_nothing_left();
}
