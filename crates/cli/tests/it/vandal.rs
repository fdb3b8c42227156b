//! Nodes that overwrite shared memory.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, output};

/// The output of a command on a dataflow, as text.
fn said(run: &Run, arguments: &[&str], code: i32) -> String {
    let result = output(run.command(&[arguments, &["-d", run.name()]].concat()));
    assert_eq!(result.0, Some(code), "{arguments:?}: {result:?}");
    result.1 + &result.2
}

/// The output of a command on a dataflow, as JSON.
fn command_json(run: &Run, arguments: &[&str], code: i32) -> Value {
    let result = output(run.command(&[arguments, &["--json", "-d", run.name()]].concat()));
    assert_eq!(result.0, Some(code), "{arguments:?}: {result:?}");
    serde_json::from_str(&result.1).unwrap()
}

/// The element with this value of this key.
fn one<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|one| one[key] == value)
        .unwrap_or_else(|| panic!("{value}: {list:#}"))
}

/// The reason that is shown if the page is mapped after it was overwritten; `run` has mapped it before.
const WHY: &str = "its counters page was overwritten: the descriptor received is no counters page";

/// A node that overwrites its own counters, between two healthy nodes that another edge joins.
fn with_vandal() -> Run {
    let relayed = json!({"source": "vandal/out", "queue_policy": "block"});
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node(
            "vandal",
            "vandal counters",
            json!({"inputs": {"in": "source/out"}, "outputs": ["out"]}),
        )
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": "source/out", "relayed": relayed}}),
        )
        .run(&[]);
    run.line("vandal", "has overwritten");
    run.line("sink", "relayed");
    run
}

#[test]
fn a_node_that_overwrites_its_counters_hides_only_its_own_row() {
    let mut run = with_vandal();
    let status = command_json(&run, &["status"], 0);
    assert_eq!(
        one(&status["nodes"], "id", "vandal")["unreadable_counters"],
        WHY,
        "{status}"
    );
    assert_eq!(
        one(&status["nodes"], "id", "sink")["unreadable_counters"],
        Value::Null,
        "{status}"
    );
    assert_eq!(
        one(&status["lossy_edges"], "topic", "vandal/out")["lost"],
        Value::Null,
        "{status}"
    );
    let unreadable = format!("the counters of node `vandal` are not readable: {WHY}");
    for arguments in [
        &["status"][..],
        &["holders"],
        &["explain"],
        &["topic", "info"],
        &["top", "--count", "1", "--interval", "10ms"],
    ] {
        let text = said(&run, arguments, 0);
        assert!(text.contains(&unreadable), "{arguments:?}: {text}");
        assert!(
            arguments == ["explain"] || text.contains("sink"),
            "{arguments:?}: {text}"
        );
    }

    let holders = &command_json(&run, &["holders"], 0)["holders"];
    let bad = one(holders, "consumer", "vandal/in");
    assert_eq!(
        (&bad["held"], &bad["queued"], &bad["missed_held"]),
        (&Value::Null, &Value::Null, &json!(0))
    );
    assert!(bad["unreadable"].as_str().unwrap().contains(WHY), "{bad}");
    let good = one(holders, "consumer", "sink/in");
    assert!(
        good["held"].is_u64() && good["queued"].is_u64() && good["unreadable"].is_null(),
        "{good}"
    );
    let explained = &command_json(&run, &["explain"], 0)["edges"];
    assert_eq!(
        one(explained, "consumer", "sink/relayed")["lost"],
        Value::Null,
        "{explained}"
    );
    assert!(
        one(explained, "consumer", "vandal/in")["sent"]
            .as_u64()
            .unwrap()
            > 0,
        "{explained}"
    );
    let topics = &command_json(&run, &["topic", "list"], 0)["topics"];
    assert_eq!(one(topics, "topic", "vandal/out")["consumers"], 1);

    // Unreadable counters do not hide the readable ones.
    let hints = command_json(&run, &["lint", "--window", "100ms"], 3);
    let hint = one(&hints["hints"], "code", "unreadable-counters");
    assert!(
        hint["about"] == "vandal" && hint["what"].as_str().unwrap().contains(WHY),
        "{hints}"
    );

    said(&run, &["node", "restart", "sink"], 0);
    said(&run, &["node", "restart", "vandal"], 0);
    run.line("vandal", "has overwritten");
    let mut recorder = run
        .command(&["record", "-d", run.name(), "-o", "run.mcap"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines();
    let begun = lines.next().unwrap().unwrap();
    assert!(begun.starts_with("recording 2 topics"), "{begun}");
    run.until("sight of it", |message| {
        let edges = message["edges"].as_array().into_iter().flatten();
        message["message"] == "edges"
            && edges.into_iter().any(|edge| edge["unreadable"].is_string())
    });
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(
        recorder.wait().unwrap().code(),
        Some(0),
        "{:?}",
        lines.collect::<Vec<_>>()
    );

    // The losses of a `block` edge are unknown, so the report must not claim that there are none.
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    // The reason depends on whether `run` had mapped the page of the last process before.
    let said = outcome.lines("nervure");
    let is_said =
        |line: &&str| line.starts_with("the counters of node `vandal` are not readable: ");
    assert!(said.iter().any(is_said), "{said:?}");
    let edges = &outcome.summary()["edges"];
    let bad = one(edges, "input", "sink/relayed");
    assert_eq!(
        (&bad["sent"], &bad["lost"], &bad["queued"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert!(bad["received"].as_u64().unwrap() > 0, "{bad}");
    let good = one(edges, "input", "sink/in");
    assert!(
        good["sent"].as_u64().unwrap() > 0 && good["unreadable"].is_null(),
        "{good}"
    );
}

/// A healthy node shares its wake page with a hostile consumer of it, and with an honest producer.
#[test]
fn a_node_whose_wake_page_is_overwritten_gets_all_samples_and_events() {
    let sink = json!({
        "inputs": {"in": "source/out", "tick": "nervure/timer/hz/50"},
        "outputs": ["out"],
        "health_check_timeout": "500ms",
    });
    // Without a timer, only its peers and the keeper wake it.
    let sleeper = json!({
        "inputs": {"in": "sink/out", "late": "source/out"},
        "outputs": ["out"],
        "health_check_timeout": "500ms",
    });
    let mut run = Dataflow::named()
        .node("source", "source 1000000 20", json!({"outputs": ["out"]}))
        .node("sink", "sink", sink)
        .node("sleeper", "sink", sleeper)
        .node(
            "vandal",
            "vandal wake",
            json!({"inputs": {"in": "source/out", "a": "sink/out", "b": "sleeper/out"}}),
        )
        .run(&[]);
    let pid = run.started("vandal");
    run.line("vandal", "overwrites");
    // Each is a producer of the vandal, which therefore has their pages.
    for node in ["sink", "sleeper"] {
        let begin = "its wake page was overwritten";
        let is_reported = |run: &Run| {
            let lines = run.seen_lines(node);
            lines
                .into_iter()
                .find(|line| line.starts_with(begin))
                .map(str::to_owned)
        };
        let parsed = is_reported(&run).unwrap_or_else(|| run.line(node, begin));
        assert!(
            parsed.contains("these, and the node itself, can write to it: ")
                && parsed.contains("`vandal`"),
            "{parsed}"
        );
    }
    for node in ["sink", "sleeper"] {
        for _ in 0..20 {
            run.until("sample", |message| {
                let text = message["text"].as_str().unwrap_or_default();
                message["node"] == node && (text.starts_with("in ") || text.starts_with("late "))
            });
        }
    }
    run.line("sink", "INPUT");
    // The death of a peer, then the stop.
    pid.signal(Signal::KILL);
    run.line("sleeper", "NODE_FAILED");
    run.signal(Signal::INT);
    let outcome = run.finish();
    for node in ["sink", "sleeper", "source"] {
        let [ended] = outcome.ends(node)[..] else {
            panic!("{node}: {:?}", outcome.ends(node))
        };
        assert_eq!(ended["failed"], false, "{ended}");
    }
    for node in ["sink", "sleeper"] {
        assert!(
            outcome
                .lines(node)
                .last()
                .is_some_and(|line| line.starts_with("STOP")),
            "{:?}",
            outcome.lines(node)
        );
    }
}

/// The producer connects only after its consumer has overwritten the whole of the queue between them.
#[test]
fn a_consumer_that_overwrites_its_queue_before_its_producer_attaches_costs_its_own_edge() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("test_node");
    let script = format!(
        "until [ -e overwritten ]; do sleep 0.01; done; exec {} source 40 5",
        program.display()
    );
    let mut run = Dataflow::named()
        .shell("source", &script, json!({"outputs": ["out"]}))
        .node(
            "vandal",
            "vandal-of-edges",
            json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&[]);
    let blamed = run.line(
        "source",
        "node `vandal` broke the rules of the edge to `vandal/in`",
    );
    assert!(blamed.contains("which is cut"), "{blamed}");
    let outcome = run.finish();
    let [ended] = outcome.ends("source")[..] else {
        panic!("{:?}", outcome.ends("source"))
    };
    assert_eq!(ended["failed"], false, "{ended}");
    let samples = |line: &&&str| line.starts_with("in ");
    let received = outcome.lines("sink");
    assert_eq!(received.iter().filter(samples).count(), 40, "{received:?}");
}
