//! Every sample that was sent is received, lost with its cause, or was not taken: with every policy, on
//! every kind of edge, after any kill, and with any end of the dataflow.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Outcome, Process, Run, output};

const POLICIES: [&str; 4] = ["drop_oldest", "drop_newest", "latest", "block"];

/// Causes of losses in JSON.
const CAUSES: [&str; 9] = [
    "dropped_oldest",
    "dropped_newest",
    "missed_held",
    "missed_memory",
    "missed_control",
    "missed_away",
    "dropped_away",
    "lost_in_crash",
    "lost_with_producer",
];

fn count(edge: &Value, key: &str) -> u64 {
    edge[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {edge}"))
}

/// Checks every edge of a summary, or of what `top` shows.
fn check(shown: &Value) {
    for edge in shown["edges"].as_array().unwrap() {
        let accounted = count(edge, "received") + count(edge, "lost") + count(edge, "not_taken");
        assert_eq!(count(edge, "sent"), accounted, "{edge:#}");
        let causes: u64 = CAUSES.iter().map(|cause| count(edge, cause)).sum();
        assert_eq!(count(edge, "lost"), causes, "{edge:#}");
    }
}

fn edge<'o>(outcome: &'o Outcome, input: &str) -> &'o Value {
    let edges = outcome.summary()["edges"].as_array().unwrap();
    let edge = edges.iter().find(|edge| edge["input"] == input);
    edge.unwrap_or_else(|| panic!("no edge to {input}: {edges:#?}"))
}

fn input(policy: &str) -> Value {
    let mut input = json!({"source": "source/out", "queue_policy": policy});
    if policy != "latest" {
        // More than a node takes before it looks for a Stop.
        input["queue_size"] = json!(50);
    }
    json!({"inputs": {"in": input}})
}

fn with_restarts(mut keys: Value) -> Value {
    keys["restart_policy"] = json!("on-failure");
    keys["restart_delay"] = json!("100ms");
    keys
}

#[test]
fn an_ordered_stop_leaves_samples_that_are_counted() {
    for policy in POLICIES {
        let mut run = Dataflow::named()
            .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
            .node("sink", "sink 20", input(policy))
            .run(&[]);
        run.until("full queue", |message| {
            let edge = &message["edges"][0];
            message["message"] == "edges"
                && edge["queued"] == edge["queue"]["depth"]
                && (policy == "block" || count(edge, "lost") > 0)
        });
        run.signal(Signal::INT);
        let outcome = run.finish();
        assert_eq!(outcome.code, Some(0), "{policy}: {}", outcome.stderr);
        check(outcome.summary());
        let edge = edge(&outcome, "sink/in");
        assert!(count(edge, "not_taken") > 0, "{policy}: {edge:#}");
        assert_eq!(count(edge, "lost") > 0, policy != "block", "{edge:#}");
    }
}

/// Runs a dataflow with its table until a node has written a line with this beginning; returns what
/// `run` wrote to stderr.
fn table_after(dataflow: &Dataflow, line: &str) -> (Option<i32>, String) {
    let file = dataflow.write();
    let mut child = dataflow
        .command(&["run", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|it| it.unwrap().contains(line)),
        "no line `{line}`"
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    // A full pipe would block it.
    let rest = std::thread::spawn(move || lines.count());
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn the_table_shows_what_was_left_and_the_line_names_how_to_take_it() {
    let dataflow = Dataflow::named()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node("sink", "sink 20", input("block"));
    let (code, stderr) = table_after(&dataflow, "in 10");
    assert_eq!(code, Some(0), "{stderr}");
    let row = |begin: &str| {
        let line = stderr.lines().find(|line| line.starts_with(begin)).unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        row("EDGE")[1..6],
        ["SENT", "RECEIVED", "LOST", "NOT", "TAKEN"]
    );
    let numbers: Vec<u64> = row("source/out")[3..7]
        .iter()
        .map(|it| it.parse().unwrap())
        .collect();
    assert_eq!(numbers[0], numbers[1] + numbers[2] + numbers[3], "{stderr}");
    assert!(numbers[3] > 0, "{stderr}");
    assert!(
        stderr.contains("of edges with `queue_policy: block` not taken")
            && stderr.contains("`nervure stop --drain`"),
        "{stderr}"
    );
}

/// A node with that role of the test component, in the process `robot`.
fn composed(id: &str, policy: &str) -> Value {
    let component = Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("libtest_component.so");
    let mut node = with_restarts(input(policy));
    node["id"] = json!(id);
    node["path"] = json!(component);
    node["process"] = json!("robot");
    node["outputs"] = json!(["out"]);
    node["params"] = json!({"role": "sink", "count": 100_000_000});
    node
}

/// Waits until a node is started again.
fn restarted(run: &mut Run, node: &str) -> Process {
    let started = run.until("restart", |message| {
        message["message"] == "node_started" && message["id"] == node
    });
    Process::new(started["pid"].as_i64().unwrap())
}

/// A source, which ends when there is a file `enough`, and consumers of every policy: as processes, and
/// of small samples as components.
fn all_kinds(zeros: u64) -> (Dataflow, Vec<&'static str>) {
    let source = format!("source-until enough {zeros}");
    let mut dataflow = Dataflow::named().node("source", &source, json!({"outputs": ["out"]}));
    let mut killed = POLICIES.to_vec();
    for policy in POLICIES {
        dataflow = dataflow.node(policy, "sink 1", with_restarts(input(policy)));
        if zeros == 0 {
            dataflow = dataflow.raw(composed(&format!("in-robot-{policy}"), policy));
        }
    }
    if zeros == 0 {
        // The others of its process die with it.
        killed.push("in-robot-block");
    }
    (dataflow, killed)
}

fn kill_all_in_turn(run: &mut Run, nodes: &[&str]) {
    for node in nodes {
        let process = run.started(node);
        run.line("drop_oldest", "in ");
        process.signal(Signal::KILL);
        restarted(run, node);
    }
}

#[test]
fn every_sample_is_accounted_for_while_consumers_are_killed() {
    // Samples in a slot of the queue, and samples in shared memory.
    for zeros in [0, 2000] {
        let (dataflow, killed) = all_kinds(zeros);
        let mut run = dataflow.run(&[]);
        for _ in 0..2 {
            kill_all_in_turn(&mut run, &killed);
        }
        run.line("drop_oldest", "in ");
        fs::write(run.folder().join("enough"), "").unwrap();
        let outcome = run.finish();
        let summary = outcome.summary();
        check(summary);
        // From the file: `run` passes over lines when it lags.
        let lines = outcome.log_file("source");
        let texts = lines.iter().filter_map(|line| line["text"].as_str());
        let sent = texts.filter_map(|text| text.strip_prefix("sent ")).next();
        let sent: u64 = sent.expect("a line of the source").parse().unwrap();
        let edges = summary["edges"].as_array().unwrap();
        let mut is_lossy = false;
        for edge in edges {
            let is_block = edge["queue"]["policy"] == "block";
            assert_eq!(count(edge, "sent"), sent, "{edge:#}");
            assert_eq!(is_block, count(edge, "missed_away") == 0, "{edge:#}");
            if is_block {
                assert_eq!(
                    count(edge, "lost"),
                    count(edge, "lost_in_crash"),
                    "{edge:#}"
                );
                is_lossy |= count(edge, "lost") > 0;
            }
        }
        let code = if is_lossy { 3 } else { 0 };
        assert_eq!(outcome.code, Some(code), "{summary:#}");
    }
}

#[test]
fn a_producer_that_ends_while_its_consumer_restarts_leaves_it_every_sample() {
    for zeros in [0, 2000] {
        let mut keys = with_restarts(input("block"));
        keys["restart_delay"] = json!("1s");
        let source = format!("source-until enough {zeros}");
        let mut run = Dataflow::named()
            .node("source", &source, json!({"outputs": ["out"]}))
            .node("block", "sink 1", keys)
            .node("other", "sink 1", input("drop_oldest"))
            .run(&[]);
        let process = run.started("block");
        run.line("block", "in ");
        process.signal(Signal::KILL);
        run.ended("block");
        // A sample that is sent meanwhile.
        for _ in 0..2 {
            run.line("other", "in ");
        }
        fs::write(run.folder().join("enough"), "").unwrap();
        let outcome = run.finish();
        check(outcome.summary());
        let edge = edge(&outcome, "block/in");
        assert_eq!(
            count(edge, "lost"),
            count(edge, "lost_in_crash"),
            "{edge:#}"
        );
        assert_eq!(count(edge, "not_taken"), 0, "{edge:#}");
    }
}

#[test]
fn a_stop_while_consumers_restart_leaves_nothing_uncounted() {
    let (dataflow, killed) = all_kinds(0);
    let mut run = dataflow.run(&[]);
    kill_all_in_turn(&mut run, &killed);
    run.started("drop_newest").signal(Signal::KILL);
    run.ended("drop_newest");
    run.signal(Signal::INT);
    let outcome = run.finish();
    check(outcome.summary());
    assert!(count(edge(&outcome, "drop_newest/in"), "lost") > 0);
}

#[test]
fn services_joined_nodes_and_restarted_producers_are_accounted_for() {
    let relay = with_restarts(json!({
        "inputs": {"in": {"source": "source/out", "queue_policy": "drop_newest"}},
        "outputs": ["out"],
    }));
    let mut run = Dataflow::named()
        .node("source", "source 1000000 2", json!({"outputs": ["out"]}))
        .node("relay", "relay", relay)
        .node(
            "sink",
            "sink 1",
            with_restarts(json!({"inputs": {"in": "relay/out"}})),
        )
        .raw(json!({"id": "plot", "path": "dynamic", "inputs": {"in": "source/out"}}))
        .node(
            "server",
            "serve",
            with_restarts(json!({"services": ["double"]})),
        )
        .node(
            "client",
            "call-always",
            json!({"clients": {"twice": "server/double"}}),
        )
        .run(&[]);
    let test_node = Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("test_node");
    for _ in 0..3 {
        let mut joined = Command::new(&test_node)
            .args(["join", "plot", run.name()])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        for node in ["relay", "sink", "server"] {
            let process = run.started(node);
            run.line("sink", "in ");
            process.signal(Signal::KILL);
            restarted(&mut run, node);
        }
        joined.kill().unwrap();
        joined.wait().unwrap();
        let top = run.command(&["top", "--json", "-n", "1", "-d", run.name()]);
        check(&serde_json::from_str(&output(top).1).unwrap());
    }
    run.signal(Signal::INT);
    check(run.finish().summary());
}

#[test]
fn a_dataflow_that_drains_leaves_nothing_in_its_queues() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node("drop", "sink 5", input("drop_oldest"))
        .node("block", "sink 5", input("block"))
        .node("doomed", "doomed-sink 40", with_restarts(input("block")))
        .run(&[]);
    for _ in 0..10 {
        run.line("block", "in ");
    }
    let stop = run.command(&["stop", "--drain=50s", "-d", run.name()]);
    let (code, stdout, stderr) = output(stop);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    check(outcome.summary());
    for input in ["drop/in", "block/in", "doomed/in"] {
        assert_eq!(count(edge(&outcome, input), "not_taken"), 0);
    }
}

#[test]
fn a_drain_ends_with_its_limit() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node("sink", "sink 200", input("block"))
        .run(&[]);
    run.line("sink", "in ");
    let stop = run.command(&["stop", "--drain=300ms", "-d", run.name()]);
    assert_eq!(output(stop).0, Some(0));
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    check(outcome.summary());
    assert!(count(edge(&outcome, "sink/in"), "not_taken") > 0);
    let is_named = |line: &&str| line.contains("not drained in time: `sink`");
    assert!(outcome.lines("nervure").iter().any(is_named));
}

#[test]
fn what_a_detached_dataflow_left_is_said_by_stop() {
    let dataflow = Dataflow::named()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node("sink", "sink 50", input("block"));
    let file = dataflow.write();
    let (code, _, stderr) = output(dataflow.command(&["run", "--detach", file.to_str().unwrap()]));
    assert_eq!(code, Some(0), "{stderr}");
    let (code, stdout, stderr) = output(dataflow.command(&["stop", "-d", dataflow.name()]));
    assert_eq!(code, Some(0), "{stderr}");
    let line = stdout.lines().next().unwrap();
    assert!(line.starts_with("source/out -> sink/in: "), "{stdout}");
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(numbers[0], numbers[1..].iter().sum::<u64>(), "{stdout}");
    assert!(numbers[3] > 0, "{stdout}");
}

#[test]
fn what_never_started_and_what_was_never_sent_is_said() {
    let dataflow = Dataflow::named()
        .node("idle", "idle", json!({"outputs": ["alarm"]}))
        .node("sink", "idle", json!({"inputs": {"in": "idle/alarm"}}))
        .raw(json!({"id": "plot", "path": "dynamic", "inputs": {"in": "idle/alarm"}}));
    let (code, stderr) = table_after(&dataflow, "ready 0");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("1 node never started: `plot`\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains("nothing was ever sent on `idle/alarm`\n"),
        "{stderr}"
    );
}

#[test]
fn a_run_in_which_nothing_started_is_not_perfect() {
    let mut run = Dataflow::named()
        .raw(json!({"id": "plot", "path": "dynamic"}))
        .run(&[]);
    run.until("start", |message| message["message"] == "ready");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert_eq!(outcome.summary()["never_started"], json!(["plot"]));
}
