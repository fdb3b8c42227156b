//! Processes that join a dataflow: nodes with `path: dynamic`, and programs in the place of a node.

use std::{
    io::{BufRead, BufReader, Lines},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process, Run};

/// A process outside of the dataflow, which is killed at the end of the test.
struct Outside {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Outside {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn join(run: &Run, node: &str) -> Self {
        let mut command = Command::new(test_node());
        command.args(["join", node, run.name()]);
        Self::start(command)
    }

    /// Waits for a line with this beginning; returns the rest.
    fn line(&mut self, begin: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim().to_owned();
            }
            seen.push(line);
        }
        panic!("there was no line `{begin}..` but {seen:?}");
    }

    fn process(&self) -> Process {
        Process::new(self.child.id().into())
    }

    /// Waits for its end; returns its exit code.
    fn code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn test_node() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("test_node")
}

fn nervure(run: &Run, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run.command(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn status(run: &Run) -> Value {
    let (code, stdout, stderr) = nervure(run, &["status", "--json", "-d", run.name()]);
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn state_of(run: &Run, node: &str) -> Value {
    node_of(run, node)["state"].clone()
}

fn node_of(run: &Run, node: &str) -> Value {
    let status = status(run);
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .find(|known| known["id"] == node)
        .unwrap()
        .clone()
}

/// A source with a `block` edge to the node `plot`, the dynamic node `plot`, and a lamp that the plot
/// switches.
fn with_plot() -> Run {
    with_plot_and(&[])
}

fn with_plot_and(options: &[&str]) -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 2", json!({"outputs": ["out"]}))
        .raw(json!({
            "id": "plot",
            "path": "dynamic",
            "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
            "outputs": ["out"],
        }))
        .node("lamp", "sink", json!({"inputs": {"in": "plot/out"}}))
        .run(options);
    run.until("readiness", |message| message["message"] == "ready");
    run
}

#[test]
fn a_dynamic_node_joins_dies_and_joins_again() {
    let mut run = with_plot();
    assert_eq!(state_of(&run, "plot"), "absent");
    let mut plot = Outside::join(&run, "plot");
    assert_eq!(plot.line("joined "), "plot 0");
    let number: u64 = plot.line("in ").parse().unwrap();
    assert_eq!(plot.line("in "), (number + 1).to_string());
    assert_eq!(run.started("plot").pid, plot.process().pid);
    run.line("lamp", "in ");
    assert_eq!(state_of(&run, "plot"), "runs");
    plot.process().signal(Signal::KILL);
    run.line(
        "lamp",
        "NODE_FAILED plot [\"in\"] it ended without closing its node",
    );
    assert_eq!(state_of(&run, "plot"), "failed");
    let mut again = Outside::join(&run, "plot");
    assert_eq!(again.line("joined "), "plot 1");
    let later: u64 = again.line("in ").parse().unwrap();
    assert!(later > number + 1, "no producer waited for it");
    run.line("lamp", "NODE_RESTARTED plot [\"in\"]");
    run.line("lamp", "in ");
    run.signal(Signal::INT);
    assert!(again.line("STOP ").starts_with("SIGINT"));
    assert_eq!(again.code(), Some(0));
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let edges = outcome.summary()["edges"].as_array().unwrap();
    let edge = edges
        .iter()
        .find(|edge| edge["input"] == "plot/in")
        .unwrap();
    let count = |key: &str| edge[key].as_u64().unwrap();
    let accounted = count("received") + count("lost") + count("undelivered");
    // Samples that the killed process had taken count as received.
    assert_eq!(count("sent"), accounted, "{edge}");
}

#[test]
fn a_dataflow_does_not_wait_for_dynamic_nodes() {
    let run = with_plot();
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.ends("plot").is_empty(),
        "{:?}",
        outcome.ends("plot")
    );
}

#[test]
fn a_dynamic_node_that_was_killed_and_stays_away_is_a_failure_of_the_run() {
    let mut run = with_plot();
    let mut plot = Outside::join(&run, "plot");
    plot.line("in ");
    plot.process().signal(Signal::KILL);
    assert_eq!(run.ended("plot")["failed"], true);
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3));
    assert_eq!(outcome.summary()["failed"][0]["id"], "plot");
}

#[test]
fn a_process_that_cannot_join_gets_the_reason() {
    let mut run = with_plot();
    let refused = |node: &str, dataflow: &str| {
        let output = Command::new(test_node())
            .args(["join", node, dataflow])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let name = run.name().to_owned();
    assert!(refused("plot", "no-such").contains("no dataflow `no-such` runs; these do: "));
    assert!(
        refused("plott", &name).contains("there is no node `plott` (hint: did you mean `plot`?)")
    );
    assert!(
        refused("lamp", &name)
            .contains("node `lamp` is started by its keeper (hint: `nervure attach lamp")
    );
    let mut plot = Outside::join(&run, "plot");
    plot.line("joined ");
    let pid = plot.child.id();
    assert!(refused("plot", &name).contains(&format!("node `plot` is taken: process {pid} is it")));
    let (code, _, stderr) = nervure(&run, &["node", "restart", "plot", "-d", &name]);
    assert!(
        code == Some(2) && stderr.contains("`path: dynamic`: its keeper does not start it"),
        "{stderr}"
    );
    let (code, _, stderr) = nervure(&run, &["node", "stop", "plot", "-d", &name]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(plot.line("STOP ").starts_with("stopped by"));
    assert_eq!(run.ended("plot")["failed"], false);

    let token = PathBuf::from(status(&run)["log_folder"].as_str().unwrap()).join("join.token");
    assert_eq!(
        token.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    std::fs::write(&token, "00112233445566778899aabbccddeeff").unwrap();
    assert!(refused("plot", &name).contains("the token does not open node `plot`"));
}

#[test]
fn a_joined_process_is_notified_of_the_death_of_its_keeper() {
    let mut run = with_plot();
    let mut plot = Outside::join(&run, "plot");
    plot.line("in ");
    run.started("source").parent().signal(Signal::KILL);
    assert_eq!(plot.line("STOP "), "the keeper is gone");
    assert_eq!(plot.code(), Some(0));
}

/// A source with a `block` edge to its sink.
fn lossless() -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 2", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "sink",
            json!({
                "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
                "env": {"COLOUR": "green"},
            }),
        )
        .run(&[]);
    run.line("sink", "in 3");
    run
}

fn attach(run: &Run, options: &[&str], command: &[&str]) -> Outside {
    let mut arguments = vec!["attach", "sink", "-d", run.name()];
    arguments.extend(options);
    arguments.push("--");
    arguments.extend(command);
    Outside::start(run.command(&arguments))
}

#[test]
fn a_program_runs_in_the_place_of_a_node_and_gives_it_back() {
    let mut run = lossless();
    let script = "echo $COLOUR $PWD; \"$@\" & child=$!; echo child $child; wait $child; exit 7";
    let mut attached = attach(&run, &[], &["sh", "-c", script, "sh", "{}"]);
    run.line("sink", "STOP stopped by `attach@");
    assert_eq!(
        attached.line("green "),
        run.folder().canonicalize().unwrap().display().to_string()
    );
    let child = Process::from_pid_text(&attached.line("child "));
    let first: u64 = attached.line("in ").parse().unwrap();
    for number in first + 1..first + 20 {
        assert_eq!(attached.line("in "), number.to_string(), "nothing is lost");
    }
    let (_, _, stderr) = nervure(&run, &["node", "restart", "sink", "-d", run.name()]);
    assert!(stderr.contains("is attached to node `sink`"), "{stderr}");
    child.signal(Signal::KILL);
    run.until("failure", |message| {
        message["message"] == "node_ended" && message["id"] == "sink" && message["failed"] == true
    });
    assert_eq!(attached.code(), Some(7));
    run.line("sink", "in ");
    assert_eq!(state_of(&run, "sink"), "runs");
    let restarts = |run: &Run| node_of(run, "sink")["restarts"].clone();
    assert_eq!(
        restarts(&run),
        0,
        "nothing was started again but what had been stopped for the other"
    );
    let (code, _, stderr) = nervure(&run, &["node", "restart", "sink", "-d", run.name()]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(restarts(&run), 1);
    run.signal(Signal::INT);
    let outcome = run.finish();
    let edge = &outcome.summary()["edges"][0];
    let count = |key: &str| edge[key].as_u64().unwrap();
    assert_eq!(count("lost"), count("lost_in_crash"), "{edge}");
}

#[test]
fn a_node_is_given_back_when_attach_is_killed() {
    let mut run = lossless();
    let node = test_node();
    let mut attached = attach(&run, &[], &[node.to_str().unwrap(), "sink"]);
    attached.line("in ");
    // `started` would return the first process.
    let started = run.until("start", |message| {
        message["message"] == "node_started" && message["id"] == "sink"
    });
    let child = Process::new(started["pid"].as_i64().unwrap());
    attached.process().signal(Signal::KILL);
    child.assert_ends();
    run.line("sink", "in ");
    assert_eq!(state_of(&run, "sink"), "runs");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_process_that_the_command_left_behind_is_no_longer_the_node() {
    let mut run = lossless();
    let script = "trap '' HUP; \"$@\" & wait";
    let mut attached = attach(&run, &[], &["sh", "-c", script, "sh", "{}"]);
    attached.line("in ");
    attached.process().signal(Signal::KILL);
    assert!(attached.line("STOP ").ends_with("has given the node back"));
    run.line("sink", "in ");
    assert_eq!(state_of(&run, "sink"), "runs");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_node_may_be_left_stopped_and_a_missing_program_is_an_error() {
    let run = lossless();
    let (code, _, stderr) = nervure(
        &run,
        &["attach", "sink", "-d", run.name(), "--", "no-such-program"],
    );
    assert!(
        code == Some(2) && stderr.contains("cannot start `no-such-program`"),
        "{stderr}"
    );
    assert_eq!(
        attach(&run, &["--leave-stopped"], &["true"]).code(),
        Some(0)
    );
    assert_eq!(state_of(&run, "sink"), "stopped");
    let (code, _, stderr) = nervure(&run, &["node", "start", "sink", "-d", run.name()]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(state_of(&run, "sink"), "runs");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_joined_process_that_is_stopped_does_not_delay_the_end() {
    let run = with_plot_and(&["--grace", "200ms"]);
    let mut plot = Outside::join(&run, "plot");
    plot.line("in ");
    plot.process().signal(Signal::STOP);
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.ends("plot").last().unwrap()["failed"], false);
    plot.process().signal(Signal::CONT);
    plot.line("STOP ");
    assert_eq!(plot.code(), Some(0));
}

#[test]
fn a_joined_process_gets_stop_when_run_is_killed() {
    let mut run = with_plot();
    let keeper = run.started("source").parent();
    let mut plot = Outside::join(&run, "plot");
    plot.line("in ");
    run.signal(Signal::KILL);
    assert_eq!(plot.line("STOP "), "`nervure run` is gone");
    assert_eq!(plot.code(), Some(0));
    keeper.assert_ends();
}

#[test]
fn a_program_in_the_place_of_a_node_and_attach_end_with_a_killed_keeper() {
    let mut run = lossless();
    let keeper = run.started("source").parent();
    let mut attached = attach(&run, &[], &["{}"]);
    attached.line("in ");
    keeper.signal(Signal::KILL);
    assert_eq!(attached.line("STOP "), "the keeper is gone");
    assert_eq!(attached.code(), Some(0));
    assert_eq!(run.finish().code, Some(1));
}

#[test]
fn status_shows_the_attached_program() {
    let run = lossless();
    let mut attached = attach(&run, &[], &["sh", "-c", "echo here; exec sleep 1000"]);
    attached.line("here");
    let (_, text, _) = nervure(&run, &["status", "-d", run.name()]);
    assert!(
        text.contains(&format!("(attach@{}", attached.child.id())),
        "{text}"
    );
    // `attach` passes the signal to the command, and exits with its code.
    attached.process().signal(Signal::TERM);
    assert_eq!(attached.code(), Some(128 + 15));
    assert_eq!(state_of(&run, "sink"), "runs");
}

#[test]
fn the_environment_selects_the_dataflow() {
    let (one, other) = (with_plot(), with_plot());
    for run in [&one, &other] {
        let output = run
            .command(&["status", "--json"])
            .env("NERVURE_DATAFLOW", run.name())
            .output()
            .unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["dataflow"], run.name());
        let mut command = Command::new(test_node());
        command
            .args(["join", "plot"])
            .env("NERVURE_DATAFLOW", run.name());
        assert_eq!(Outside::start(command).line("joined "), "plot 0");
    }
    let output = one
        .command(&["status"])
        .env("NERVURE_DATAFLOW", "no-such")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.contains("hint: NERVURE_DATAFLOW is `no-such` in the environment"),
        "{stderr}"
    );
}
