//! What happens to processes: that none is left behind, whoever is killed.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process};

/// Tells its own and a child's number, and waits for ever.
const WITH_CHILD: &str = "sleep 1000 & echo child $!; echo ready; wait";

/// A child in a session of its own: out of reach of signals to the node's group.
const WITH_DAEMON: &str = "setsid sh -c 'echo daemon $$; exec sleep 1000' & wait";

#[test]
fn nodes_and_their_children_end_with_a_killed_keeper() {
    let dataflow = Dataflow::new().shell("group", WITH_CHILD, json!({})).shell("far", WITH_DAEMON, json!({}));
    let mut run = dataflow.run(&[]);
    let (group, far) = (run.started("group"), run.started("far"));
    let mut processes = vec![group.parent()];
    let (mut child, mut daemon) = (None, None);
    while child.is_none() || daemon.is_none() {
        let line = run.until("line", |message| message["message"] == "log");
        let text = line["text"].as_str().unwrap();
        child = child.or_else(|| text.strip_prefix("child ").map(Process::told));
        daemon = daemon.or_else(|| text.strip_prefix("daemon ").map(Process::told));
    }
    processes[0].signal(Signal::KILL);
    processes.extend([group, far, child.unwrap(), daemon.unwrap()]);
    let outcome = run.finish();
    processes.iter().for_each(Process::assert_ends);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("the keeper of the dataflow ended before its nodes (killed by SIGKILL"));
}

#[test]
fn nodes_and_their_children_end_with_a_killed_run() {
    let mut run = Dataflow::new().shell("node", WITH_CHILD, json!({})).run(&[]);
    let node = run.started("node");
    let child = Process::told(&run.line("node", "child"));
    let keeper = node.parent();
    run.signal(Signal::KILL);
    [node, child, keeper].iter().for_each(Process::assert_ends);
    assert_eq!(run.finish().code, None);
}

#[test]
fn a_killed_run_is_noticed_while_there_is_much_to_tell_it() {
    let mut run = Dataflow::new().shell("flood", "exec yes $(seq 100)", json!({})).run(&[]);
    let node = run.started("flood");
    let keeper = node.parent();
    for _ in 0..1000 {
        run.line("flood", "1 2 3");
    }
    run.signal(Signal::KILL);
    [node, keeper].iter().for_each(Process::assert_ends);
}

#[test]
fn a_node_that_ignores_sigterm_is_killed_in_the_end() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut run = Dataflow::new().shell("stubborn", script, json!({})).run(&["--grace", "50ms"]);
    let node = run.started("stubborn");
    run.line("stubborn", "ready");
    run.signal(Signal::INT);
    let ended = run.ended("stubborn");
    assert_eq!((&ended["signal"], &ended["failed"]), (&json!(9), &json!(false)));
    let outcome = run.finish();
    node.assert_ends();
    assert_eq!(outcome.code, Some(0), "it was asked to stop, and did");
    assert!(outcome.lines("stubborn").iter().any(|line| line.contains("has not ended within 2s of SIGTERM")));
}

#[test]
fn a_node_that_is_stopped_by_a_signal_is_killed_too() {
    let mut run =
        Dataflow::new().shell("frozen", "echo ready; sleep 1000", json!({})).run(&["--grace", "50ms"]);
    let node = run.started("frozen");
    run.line("frozen", "ready");
    node.signal(Signal::STOP);
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code, Some(0));
    node.assert_ends();
}

#[test]
fn a_second_signal_kills() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut run = Dataflow::new().shell("stubborn", script, json!({})).run(&["--grace", "1h"]);
    let node = run.started("stubborn");
    run.line("stubborn", "ready");
    run.signal(Signal::INT);
    run.until("news", |message| message["text"] == "stopping the nodes; once more kills them");
    // What comes at once is the same signal.
    std::thread::sleep(Duration::from_millis(100));
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(130));
    node.assert_ends();
}

#[test]
fn what_a_node_leaves_in_its_group_ends_with_it() {
    let mut run = Dataflow::new()
        .shell("short", "sleep 1000 & echo child $!", json!({}))
        .shell("long", "sleep 1000", json!({}))
        .run(&[]);
    let child = Process::told(&run.line("short", "child"));
    child.assert_ends();
    run.signal(Signal::TERM);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.ends("short")[0]["failed"], false);
}

#[test]
fn what_a_node_leaves_elsewhere_ends_with_the_dataflow() {
    let script = "setsid sh -c 'echo daemon $$; exec sleep 1000' >&1 & sleep 0.2";
    let mut run = Dataflow::new().shell("node", script, json!({})).run(&[]);
    let daemon = Process::told(&run.line("node", "daemon"));
    let outcome = run.finish();
    daemon.assert_ends();
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.lines("nervure").contains(&"killed 1 process(es) that nodes had left behind"));
}

#[test]
fn a_node_has_its_own_group_and_no_descriptors_but_its_own() {
    let script = "
import os, sys
print('group', os.getpgid(0) == os.getpid())
print('input', repr(sys.stdin.read()))
for fd in os.listdir('/proc/self/fd'):
    try:
        print('fd', fd, os.readlink(f'/proc/self/fd/{fd}'))
    except FileNotFoundError:
        pass  # That of the listing itself.
import resource
print('limit', resource.getrlimit(resource.RLIMIT_NOFILE)[0])
";
    let outcome = Dataflow::new().python("node", script, json!({})).run(&[]).finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines = outcome.lines("node");
    assert_eq!(lines[..2], ["group True", "input ''"]);
    let descriptors: Vec<_> = lines.iter().filter(|line| line.starts_with("fd ")).collect();
    let sockets = descriptors.iter().filter(|line| line.contains("socket:")).count();
    assert_eq!(
        (descriptors.len(), sockets),
        (4, 1),
        "stdin, stdout, stderr and its control socket: {descriptors:?}"
    );
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
    assert!(lines.contains(&format!("limit {own}").as_str()), "{lines:?}");
}

#[test]
fn nodes_get_the_environment_and_the_folder_of_the_dataflow() {
    let dataflow =
        Dataflow::new().shell("node", "echo \"$COLOUR in $(pwd -P)\"", json!({"env": {"COLOUR": "green"}}));
    let folder = dataflow.folder().canonicalize().unwrap();
    let outcome = dataflow.run(&[]).finish();
    assert_eq!(outcome.lines("node"), [format!("green in {}", folder.display())]);
}

#[test]
fn a_node_stays_on_its_cpus() {
    let script = "grep Cpus_allowed_list /proc/self/status";
    let outcome = Dataflow::new()
        .shell("pinned", script, json!({"cpu_affinity": [0]}))
        .shell("lost", script, json!({"cpu_affinity": [1023]}))
        .run(&[])
        .finish();
    assert_eq!(outcome.lines("pinned"), ["Cpus_allowed_list:\t0"]);
    let reason = outcome.ends("lost")[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("`cpu_affinity: [1023]` was refused") && reason.contains("CPUs may be used here"),
        "{reason}"
    );
    assert_eq!(outcome.code, Some(3));
}

#[test]
fn too_few_descriptors_are_told_with_the_sum() {
    let mut dataflow = Dataflow::new();
    for number in 0..20 {
        dataflow = dataflow.shell(&format!("n{number}"), "true", json!({}));
    }
    let outcome = dataflow.run_with("ulimit -n 150", &[]).finish();
    let stderr = outcome.stderr;
    assert_eq!(outcome.code, Some(1), "{stderr}");
    assert!(stderr.contains("needs 204 file descriptors in its keeper (7 for each of 20 nodes"), "{stderr}");
    assert!(stderr.contains("the hard limit is 150") && stderr.contains("ulimit -Hn 204"), "{stderr}");
}

#[test]
fn signals_work_while_nobody_reads_the_output() {
    let dataflow = Dataflow::new().shell("flood", "echo $$ > started; exec yes $(seq 100)", json!({}));
    let made = Command::new("mkfifo").arg(dataflow.folder().join("started")).status().unwrap();
    assert!(made.success());
    let file = dataflow.write();
    let mut child = dataflow.command(&["run", "--json"]).arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let node = Process::told(fs::read_to_string(dataflow.folder().join("started")).unwrap().trim());
    let run = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(run, Signal::INT).unwrap();
    node.assert_ends();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_hostile_control_message_ends_its_sender_and_nobody_else() {
    let script =
        "import os, time\nos.write(int(os.environ['NERVURE_CONTROL_FD']), b'\\xff{')\ntime.sleep(1000)\n";
    let keys: Value = json!({"outputs": ["out"]});
    let outcome = Dataflow::new()
        .python("evil", script, keys)
        .node("sink", "sink", json!({"inputs": {"in": "evil/out"}}))
        .run(&[])
        .finish();
    let reason = outcome.ends("evil")[0]["reason"].as_str().unwrap();
    assert!(reason.contains("broke the control protocol: malformed control message"), "{reason}");
    assert!(outcome.lines("sink").contains(&"INPUT_CLOSED in"));
    assert_eq!(outcome.code, Some(3));
}
