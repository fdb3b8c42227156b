//! Nodes that share a process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process, Run, output};

fn component() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("libtest_component.so")
}

/// A node of the process `robot`.
fn composed(id: &str, role: &str, inputs: Value, keys: Value) -> Value {
    let mut node = json!({
        "id": id,
        "path": component(),
        "process": "robot",
        "inputs": inputs,
        "outputs": ["out"],
        "params": {"role": role, "count": 100_000_000},
    });
    for (key, value) in keys.as_object().unwrap() {
        node[key] = value.clone();
    }
    node
}

/// A source with a lossless sink in one process, and beside them a node with that role.
fn with(role: &str, keys: Value) -> Run {
    let lossless = json!({"in": {"source": "source/out", "queue_policy": "block"}});
    Dataflow::named()
        .raw(composed("source", "source", json!({}), json!({})))
        .raw(composed("sink", "sink", lossless, json!({})))
        .raw(composed("other", role, json!({"in": "source/out"}), keys))
        .run(&["--grace", "200ms"])
}

/// Waits until the sink has received further samples, without a gap.
fn assert_flows(run: &mut Run) {
    for _ in 0..2 {
        run.line("robot", "sink has");
    }
}

/// Waits until a node is started again; returns its process.
fn restarted(run: &mut Run, node: &str) -> Pid {
    let started = run.until("restart", |message| {
        message["message"] == "node_started" && message["id"] == node
    });
    Process::new(started["pid"].as_i64().unwrap()).pid
}

fn stop(run: Run) -> crate::dataflow::Outcome {
    run.signal(Signal::INT);
    run.finish()
}

#[test]
fn nodes_of_a_process_are_threads_of_it() {
    let mut run = with("sink", json!({}));
    let processes: Vec<_> = ["source", "sink", "other"]
        .map(|node| run.started(node).pid)
        .to_vec();
    assert_eq!(processes, [processes[0]; 3]);
    assert_flows(&mut run);
    let threads = std::fs::read_dir(format!("/proc/{}/task", processes[0].as_raw_pid())).unwrap();
    let names: Vec<String> = threads
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap())
        .collect();
    for node in ["source\n", "sink\n", "other\n"] {
        assert!(
            names.iter().any(|name| name == node),
            "{names:?} {:?}",
            run.seen_lines("robot")
        );
    }
    let outcome = stop(run);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.log_file("robot").len() > 2,
        "what the process writes has a log of its own"
    );
}

/// Checks that the end of `other` is a failure with that reason, and that the others continue.
fn assert_ends_alone(role: &str, code: i64, reason: &str) {
    let mut run = with(role, json!({}));
    let process = run.started("source");
    let ended = run.ended("other");
    assert_eq!(ended["code"], code, "{ended}");
    assert!(
        ended["reason"].as_str().unwrap().contains(reason),
        "{ended}"
    );
    assert_flows(&mut run);
    let outcome = stop(run);
    process.assert_ends();
    assert_eq!(outcome.code, Some(3));
    for node in ["source", "sink"] {
        let ends = outcome.ends(node);
        assert_eq!(ends.len(), 1);
        assert_eq!(ends[0]["failed"], false, "{}", ends[0]);
    }
}

#[test]
fn a_panic_ends_its_node_alone() {
    assert_ends_alone("panic", 101, "it panicked: as requested");
}

#[test]
fn an_error_ends_its_node_alone() {
    assert_ends_alone("fail", 1, "it has failed as requested");
}

#[test]
fn a_call_of_exit_ends_its_node_alone() {
    assert_ends_alone("exit", 7, "it called `exit`");
}

#[test]
fn a_node_that_failed_is_restarted_in_the_same_process() {
    for role in ["panic", "exit"] {
        let mut run = with(role, json!({"restart_policy": "on-failure"}));
        let first = run.started("other").pid;
        assert_eq!(run.ended("other")["restarts"], true);
        assert_eq!(restarted(&mut run, "other"), first);
        assert_flows(&mut run);
        assert_eq!(stop(run).code, Some(0));
    }
}

#[test]
fn a_segfault_ends_the_process_and_the_policies_restart_its_nodes() {
    let restart = json!({"restart_policy": "on-failure"});
    let lossless = json!({"in": {"source": "source/out", "queue_policy": "block"}});
    let mut run = Dataflow::new()
        .raw(composed("source", "source", json!({}), restart.clone()))
        .raw(composed("sink", "sink", lossless, restart.clone()))
        .raw(composed(
            "other",
            "segfault",
            json!({"in": "source/out"}),
            restart,
        ))
        .run(&["--grace", "200ms"]);
    let first = run.started("source").pid;
    for node in ["source", "sink", "other"] {
        let ended = run.ended(node);
        assert_eq!(ended["signal"], 11, "{ended}");
        let reason = ended["reason"].as_str().unwrap();
        assert!(
            reason.contains("its process `robot` was killed by SIGSEGV"),
            "{reason}"
        );
    }
    // The threads of the nodes report in any order.
    let mut processes = BTreeMap::new();
    run.until("restart of all nodes", |message| {
        if message["message"] == "node_started" {
            processes.insert(message["id"].to_string(), message["pid"].as_i64());
        }
        processes.len() == 3
    });
    let processes: BTreeSet<_> = processes.into_values().flatten().collect();
    assert_eq!(processes.len(), 1);
    assert!(!processes.contains(&i64::from(first.as_raw_pid())));
    assert_flows(&mut run);
    assert_eq!(stop(run).code, Some(0));
}

#[test]
fn a_killed_process_ends_all_its_nodes() {
    let mut run = with("sink", json!({}));
    let process = run.started("source");
    assert_flows(&mut run);
    process.signal(Signal::KILL);
    for node in ["source", "sink", "other"] {
        let ended = run.ended(node);
        assert_eq!(
            (&ended["signal"], &ended["failed"]),
            (&json!(9), &json!(true))
        );
    }
    assert_eq!(run.finish().code, Some(3));
}

#[test]
fn a_composed_node_that_does_not_stop_ends_with_its_process() {
    let mut run = with("deaf", json!({}));
    let process = run.started("other");
    run.line("robot", "sink has");
    let outcome = stop(run);
    process.assert_ends();
    let end = outcome.ends("other")[0];
    assert!(
        end["reason"].as_str().unwrap().contains("did not end"),
        "{end}"
    );
    assert_eq!(outcome.ends("sink")[0]["failed"], false);
}

#[test]
fn one_composed_node_is_stopped_and_started_by_hand() {
    let mut run = with("sink", json!({}));
    assert_flows(&mut run);
    for (command, report) in [("stop", "node_ended"), ("start", "node_started")] {
        let control = run.command(&["node", command, "other", "-d", run.name()]);
        let (code, _, stderr) = output(control);
        assert_eq!(code, Some(0), "{stderr}");
        run.until(report, |message| {
            message["message"] == report && message["id"] == "other"
        });
        assert_flows(&mut run);
    }
    let ended = stop(run);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_component_is_unloaded_and_loaded_while_the_others_go_on() {
    let mut run = with("sink", json!({}));
    assert_flows(&mut run);
    let process = run.started("source").pid;
    let order = |run: &Run, command: &str, node: &str| {
        let (code, stdout, stderr) =
            output(run.command(&["node", command, node, "-d", run.name()]));
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(stdout, format!("node `{node}` is {command}ed\n"));
    };
    order(&run, "unload", "other");
    let ended = run.ended("other");
    let reason = ended["reason"].as_str().unwrap();
    assert!(reason.contains("unloaded by hand"), "{ended}");
    // The lossless sink fails at a gap.
    assert_flows(&mut run);
    order(&run, "load", "other");
    assert_eq!(restarted(&mut run, "other"), process);
    run.line("robot", "other has");
    assert_flows(&mut run);
    // Without its lossless consumer the source does not wait.
    order(&run, "unload", "sink");
    run.ended("sink");
    run.line("robot", "other has");
    run.line("robot", "other has");
    let ended = stop(run);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(
        (ended.ends("source").len(), ended.ends("sink").len()),
        (1, 1)
    );
}

/// Builds a component that prints a word, and ends without having connected.
fn build_probe(folder: &Path, word: &str) {
    let code = format!(
        "#include <stdio.h>\n\
         int nervure_component_v1(int control, char *reason, unsigned long size) {{\n\
             puts(\"probe {word}\"); fflush(stdout); return 0;\n\
         }}\n"
    );
    std::fs::write(folder.join("probe.c"), code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "probe.c", "-o", "new.so"]);
    assert!(cc.current_dir(folder).status().unwrap().success());
    // As linkers do: another file takes the name.
    std::fs::rename(folder.join("new.so"), folder.join("libprobe.so")).unwrap();
}

#[test]
fn a_component_is_loaded_as_its_file_is_now() {
    let dataflow = Dataflow::named()
        .raw(composed("source", "source", json!({}), json!({})))
        .raw(json!({"id": "probe", "path": "libprobe.so", "process": "robot"}));
    build_probe(dataflow.folder(), "one");
    let mut run = dataflow.run(&[]);
    assert_probe_shows(&mut run, "one");
    let mut before = "one";
    for word in ["one", "two", "two", "three"] {
        if word != before {
            build_probe(run.folder(), word);
        }
        before = word;
        let (code, _, stderr) = output(run.command(&["node", "load", "probe", "-d", run.name()]));
        assert_eq!(code, Some(0), "{stderr}");
        assert_probe_shows(&mut run, word);
    }
    assert_eq!(stop(run).code, Some(0));
}

/// Waits until the probe has shown a word, and has ended; its log may come later than its end.
fn assert_probe_shows(run: &mut Run, word: &str) {
    let line = format!("probe {word}");
    let (mut is_shown, mut has_ended) = (false, false);
    run.until(&format!("end of a probe that shows {word:?}"), |message| {
        is_shown |= message["message"] == "log" && message["text"] == line.as_str();
        has_ended |= message["message"] == "node_ended" && message["id"] == "probe";
        is_shown && has_ended
    });
}

#[test]
fn top_shows_the_threads_of_a_process_as_nodes() {
    let mut run = with("sink", json!({}));
    assert_flows(&mut run);
    let arguments = ["top", "--json", "--count", "2", "-d", run.name()];
    let (code, stdout, stderr) = output(run.command(&arguments));
    assert_eq!(code, Some(0), "{stderr}");
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let nodes = last["nodes"].as_array().unwrap();
    let pids: BTreeSet<u64> = nodes
        .iter()
        .map(|node| node["pid"].as_u64().unwrap())
        .collect();
    let threads: BTreeSet<u64> = nodes
        .iter()
        .map(|node| node["thread"].as_u64().unwrap())
        .collect();
    assert_eq!((pids.len(), threads.len()), (1, 3), "{last}");
    for node in nodes {
        assert_eq!(node["threads"], 1, "{node}");
        assert!(node["cpu_percent"].as_f64().is_some(), "{node}");
    }
    assert_eq!(stop(run).code, Some(0));
}

#[test]
fn a_component_runs_alone_in_the_same_way() {
    let alone = |id: &str, role: &str, inputs: Value| {
        let mut node = composed(
            id,
            role,
            inputs,
            json!({"params": {"role": role, "count": 250}}),
        );
        node.as_object_mut().unwrap().remove("process");
        node
    };
    let lossless = json!({"in": {"source": "source/out", "queue_policy": "block"}});
    let outcome = Dataflow::new()
        .raw(alone("source", "source", json!({})))
        .raw(alone("sink", "sink", lossless))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.lines("sink").contains(&"sink received 250"));
}

#[test]
fn a_library_without_the_entry_is_no_component() {
    let mut node = composed("other", "sink", json!({}), json!({}));
    let library = std::fs::read_dir("/lib/x86_64-linux-gnu")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name == "libm.so.6"));
    let Some(library) = library else {
        return eprintln!("skipped: no libm.so.6 here");
    };
    node["path"] = json!(library);
    let outcome = Dataflow::new().raw(node).run(&[]).finish();
    assert_eq!(outcome.code, Some(3));
    let end = outcome.ends("other")[0];
    assert!(
        end["reason"]
            .as_str()
            .unwrap()
            .contains("no function `nervure_component_v1`"),
        "{end}"
    );
}
