//! No process is left behind, whichever process is killed.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process, Run};

/// Prints its own process id and that of a child, and waits forever.
const WITH_CHILD: &str = "sleep 1000 & echo child $!; echo ready; wait";

/// A child in a session of its own, which signals to the node's group do not reach.
const WITH_DAEMON: &str = "setsid sh -c 'echo daemon $$; exec sleep 1000' & wait";

#[test]
fn nodes_and_their_children_end_with_a_killed_keeper() {
    let dataflow =
        Dataflow::new()
            .shell("group", WITH_CHILD, json!({}))
            .shell("far", WITH_DAEMON, json!({}));
    let mut run = dataflow.run(&[]);
    let (group, far) = (run.started("group"), run.started("far"));
    let mut processes = vec![group.parent()];
    let (mut child, mut daemon) = (None, None);
    while child.is_none() || daemon.is_none() {
        let line = run.until("line", |message| message["message"] == "log");
        let text = line["text"].as_str().unwrap();
        child = child.or_else(|| text.strip_prefix("child ").map(Process::from_pid_text));
        daemon = daemon.or_else(|| text.strip_prefix("daemon ").map(Process::from_pid_text));
    }
    processes[0].signal(Signal::KILL);
    processes.extend([group, far, child.unwrap(), daemon.unwrap()]);
    let outcome = run.finish();
    processes.iter().for_each(Process::assert_ends);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome
            .stderr
            .contains("the keeper of the dataflow ended before its nodes (killed by SIGKILL")
    );
}

#[test]
fn nodes_and_their_children_end_with_a_killed_run() {
    let mut run = Dataflow::new()
        .shell("node", WITH_CHILD, json!({}))
        .run(&[]);
    let node = run.started("node");
    let child = Process::from_pid_text(&run.line("node", "child"));
    let keeper = node.parent();
    run.signal(Signal::KILL);
    [node, child, keeper].iter().for_each(Process::assert_ends);
    assert_eq!(run.finish().code, None);
}

#[test]
fn a_killed_run_is_noticed_while_many_messages_wait_for_it() {
    let mut run = Dataflow::new()
        .shell("flood", "exec yes $(seq 100)", json!({}))
        .run(&[]);
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
    let mut run = Dataflow::new()
        .shell("stubborn", script, json!({}))
        .run(&["--grace", "50ms"]);
    let node = run.started("stubborn");
    run.line("stubborn", "ready");
    run.signal(Signal::INT);
    let ended = run.ended("stubborn");
    assert_eq!(
        (&ended["signal"], &ended["failed"]),
        (&json!(9), &json!(true))
    );
    let outcome = run.finish();
    node.assert_ends();
    assert_eq!(outcome.code, Some(3), "it did not stop");
    assert_eq!(
        outcome.summary()["failed"][0]["reason"],
        "it did not end within 50ms of Stop, and was killed"
    );
    assert!(
        outcome
            .lines("stubborn")
            .iter()
            .any(|line| line.contains("has not ended within 2s of SIGTERM"))
    );
}

#[test]
fn a_node_that_is_stopped_by_a_signal_is_killed_too() {
    let mut run = Dataflow::new()
        .shell("frozen", "echo ready; sleep 1000", json!({}))
        .run(&["--grace", "50ms"]);
    let node = run.started("frozen");
    run.line("frozen", "ready");
    node.stop();
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code, Some(3));
    node.assert_ends();
}

#[test]
fn a_second_signal_kills() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut run = Dataflow::new()
        .shell("stubborn", script, json!({}))
        .run(&["--grace", "1h"]);
    let node = run.started("stubborn");
    run.line("stubborn", "ready");
    run.signal(Signal::INT);
    run.until("news", |message| {
        message["text"] == "stopping the nodes; a second Ctrl-C kills them"
    });
    // A signal that follows at once counts as the same.
    std::thread::sleep(Duration::from_millis(100));
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(130));
    node.assert_ends();
}

/// A dataflow whose keeper is stopped, with the processes below it: the keeper, a node, its child,
/// and one in a session of its own.
fn with_a_stopped_keeper(arguments: &[&str]) -> (Run, Vec<Process>) {
    let dataflow = Dataflow::named()
        .shell("node", WITH_CHILD, json!({}))
        .shell("far", WITH_DAEMON, json!({}));
    let mut run = dataflow.run(arguments);
    let (node, far) = (run.started("node"), run.started("far"));
    let keeper = node.parent();
    let (mut child, mut daemon) = (None, None);
    while child.is_none() || daemon.is_none() {
        let line = run.until("line", |message| message["message"] == "log");
        let text = line["text"].as_str().unwrap();
        child = child.or_else(|| text.strip_prefix("child ").map(Process::from_pid_text));
        daemon = daemon.or_else(|| text.strip_prefix("daemon ").map(Process::from_pid_text));
    }
    keeper.stop();
    (
        run,
        vec![keeper, node, far, child.unwrap(), daemon.unwrap()],
    )
}

#[test]
fn a_second_signal_kills_also_when_the_keeper_hangs() {
    let (mut run, processes) = with_a_stopped_keeper(&["--grace", "1h"]);
    run.signal(Signal::INT);
    run.until("news", |message| {
        message["text"] == "stopping the nodes; a second Ctrl-C kills them"
    });
    // A signal that follows at once counts as the same.
    std::thread::sleep(Duration::from_millis(100));
    run.signal(Signal::INT);
    let keeper = processes[0].pid.as_raw_pid();
    let outcome = run.finish();
    processes.iter().for_each(Process::assert_ends);
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    let said = format!(
        "the keeper (process {keeper}) has not ended within 3s of the order to kill its nodes \
         (it is stopped, by SIGSTOP or a debugger): killing it and its nodes"
    );
    assert!(
        outcome.lines("nervure").contains(&said.as_str()),
        "{:?}",
        outcome.lines("nervure")
    );
}

#[test]
fn a_third_signal_leaves_nothing_running_either() {
    let (mut run, processes) = with_a_stopped_keeper(&["--grace", "1h"]);
    for news in [
        "stopping the nodes; a second Ctrl-C kills them",
        "killing the nodes",
    ] {
        run.signal(Signal::INT);
        run.until("news", |message| message["text"] == news);
        std::thread::sleep(Duration::from_millis(100));
    }
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(130));
    processes.iter().for_each(Process::assert_ends);
}

#[test]
fn a_stop_that_a_hanging_keeper_ignores_ends_with_the_grace_period() {
    let (run, processes) = with_a_stopped_keeper(&["--grace", "10ms"]);
    run.signal(Signal::TERM);
    let outcome = run.finish();
    processes.iter().for_each(Process::assert_ends);
    assert_eq!(outcome.code, Some(1));
    let said = "error: the dataflow had to be killed\n  caused by: the keeper (process";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    assert!(
        outcome
            .stderr
            .contains("has not ended within 7.01s of the order to stop (it is stopped")
    );
}

#[test]
fn stop_reports_a_hanging_keeper_and_kills_it_on_request() {
    let (run, processes) = with_a_stopped_keeper(&[]);
    let keeper = processes[0].pid.as_raw_pid();
    let stop = |arguments: &[&str]| {
        let output = run
            .command(&["stop", "-d", run.name()])
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, _, stderr) = stop(&[]);
    assert_eq!(code, Some(1));
    let name = run.name();
    let hangs = format!(
        "the keeper of {name} (process {keeper}) does not answer: it is stopped, by SIGSTOP or a debugger"
    );
    let hint = format!(
        "continue a stopped process with `kill -CONT {keeper}`, or kill the keeper and its nodes with \
         `nervure stop --kill -d {keeper}`"
    );
    assert_eq!(stderr, format!("error: {hangs}\n\nhint: {hint}\n"));
    let (code, stdout, stderr) = stop(&["--kill"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(
        stdout,
        format!("{name} was killed: its keeper, and 4 process(es) below it\n")
    );
    assert_eq!(stderr, format!("{hangs}; killing it and its nodes\n"));
    processes.iter().for_each(Process::assert_ends);
    assert_eq!(run.finish().code, Some(1));
}

#[test]
fn processes_in_the_group_of_a_node_end_with_it() {
    let mut run = Dataflow::new()
        .shell("short", "sleep 1000 & echo child $!", json!({}))
        .shell("long", "sleep 1000", json!({}))
        .run(&[]);
    let child = Process::from_pid_text(&run.line("short", "child"));
    child.assert_ends();
    run.signal(Signal::TERM);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.ends("short")[0]["failed"], false);
}

#[test]
fn processes_outside_the_group_of_a_node_end_with_it() {
    let script = "setsid sh -c 'echo daemon $$; exec sleep 1000' >&1 & sleep 0.2";
    let mut run = Dataflow::new().shell("node", script, json!({})).run(&[]);
    let daemon = Process::from_pid_text(&run.line("node", "daemon"));
    let outcome = run.finish();
    daemon.assert_ends();
    assert_eq!(outcome.code, Some(0));
    let said = "killed 1 process(es) outside its process group that it had left behind";
    assert!(outcome.lines("node").contains(&said), "{:?}", outcome.seen);
}

/// Starts a daemon, waits until it runs, and fails; after a restart it waits forever.
const RESTARTED_WITH_DAEMON: &str = "test -e up && { echo again; exec sleep 1000; }; \
    setsid sh -c 'echo daemon $$; : >up; exec sleep 1000' & while ! test -e up; do sleep 0.01; done; exit 1";

/// The control group of a process below the keeper's, if nodes have control groups here; otherwise
/// prints why that is not tested.
fn node_group(process: &Process) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.pid.as_raw_pid())).unwrap();
    let group = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or_default();
    if !group.contains("/node-") {
        eprintln!("not tested: no control groups can be made here ({groups})");
        return None;
    }
    Some(group.to_owned())
}

#[test]
fn processes_outside_the_group_of_a_node_end_before_its_restart() {
    for preparation in ["export NERVURE_CGROUPS=0", "true"] {
        let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
        let mut run = Dataflow::new()
            .shell("node", RESTARTED_WITH_DAEMON, keys)
            .run_with(preparation, &[]);
        let daemon = Process::from_pid_text(&run.line("node", "daemon"));
        run.line(
            "node",
            "killed 1 process(es) outside its process group that it had left behind",
        );
        run.line("node", "again");
        daemon.assert_ends();
        run.signal(Signal::TERM);
        assert_eq!(run.finish().code, Some(0), "{preparation}");
    }
}

#[test]
fn a_node_that_is_killed_takes_all_processes_of_its_control_group_with_it() {
    // The daemon has an empty environment.
    let script = "trap '' TERM; setsid env -i sh -c 'echo daemon $$; exec sleep 1000' & echo ready; \
                  while :; do sleep 0.1; done";
    let mut run = Dataflow::new()
        .shell("cpu.stat", script, json!({}))
        .run(&["--grace", "10ms"]);
    let node = run.started("cpu.stat");
    let daemon = Process::from_pid_text(&run.line("cpu.stat", "daemon"));
    let keeper = node.parent().pid.as_raw_pid();
    let Some(group) = node_group(&node) else {
        return;
    };
    assert!(
        group.ends_with("/node-cpu.stat") && group.contains(&format!("/nervure-{keeper}-")),
        "{group}"
    );
    assert_eq!(node_group(&daemon), Some(group.clone()));
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(3), "it had to be killed");
    daemon.assert_ends();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    for line in mounts.lines().filter(|line| line.contains(" cgroup2 ")) {
        let mount = line.split(' ').nth(1).unwrap();
        let folder = format!("{mount}{}", group.strip_suffix("/node-cpu.stat").unwrap());
        assert!(!fs::exists(&folder).unwrap(), "{folder} is left");
    }
}

#[test]
fn orphans_of_a_killed_keeper_and_run_end_with_the_next_run() {
    let logs = tempfile::tempdir().unwrap();
    let logs = format!("export NERVURE_LOG_DIR={}", logs.path().display());
    for preparation in [format!("{logs}; export NERVURE_CGROUPS=0"), logs.clone()] {
        let preparation = preparation.as_str();
        let mut run = Dataflow::new()
            .shell("far", WITH_DAEMON, json!({}))
            .run_with(preparation, &[]);
        let far = run.started("far");
        let daemon = Process::from_pid_text(&run.line("far", "daemon"));
        let keeper = far.parent();
        keeper.stop();
        run.signal(Signal::KILL);
        keeper.signal(Signal::KILL);
        [&far, &keeper].into_iter().for_each(Process::assert_ends);
        assert_eq!(run.finish().code, None);
        let next = Dataflow::new()
            .shell("node", "true", json!({}))
            .run_with(preparation, &[])
            .finish();
        assert_eq!(next.code, Some(0), "{}", next.stderr);
        daemon.assert_ends();
    }
}

#[test]
fn top_counts_the_children_of_a_node_in_its_control_group() {
    let script = "sh -c 'while :; do :; done' & echo ready; wait";
    let mut run = Dataflow::named().shell("node", script, json!({})).run(&[]);
    let node = run.started("node");
    run.line("node", "ready");
    if node_group(&node).is_none() {
        return;
    }
    let arguments = [
        "top",
        "-d",
        run.name(),
        "--json",
        "-n",
        "2",
        "--interval",
        "200ms",
    ];
    let output = run.command(&arguments).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let usage = &last["nodes"][0];
    assert!(usage["cpu_percent"].as_f64().unwrap() > 1.0, "{usage}");
    assert_eq!(usage["threads"], 2);
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_node_has_its_own_group_and_only_its_own_descriptors() {
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
    let outcome = Dataflow::new()
        .python("node", script, json!({}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines = outcome.lines("node");
    assert_eq!(lines[..2], ["group True", "input ''"]);
    let descriptors: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("fd "))
        .collect();
    let sockets = descriptors
        .iter()
        .filter(|line| line.contains("socket:"))
        .count();
    assert_eq!(
        (descriptors.len(), sockets),
        (4, 1),
        "stdin, stdout, stderr and its control socket: {descriptors:?}"
    );
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap();
    assert!(
        lines.contains(&format!("limit {own}").as_str()),
        "{lines:?}"
    );
}

#[test]
fn nodes_get_the_environment_and_the_folder_of_the_dataflow() {
    let dataflow = Dataflow::new().shell(
        "node",
        "echo \"$COLOUR in $(pwd -P)\"",
        json!({"env": {"COLOUR": "green"}}),
    );
    let folder = dataflow.folder().canonicalize().unwrap();
    let outcome = dataflow.run(&[]).finish();
    assert_eq!(
        outcome.lines("node"),
        [format!("green in {}", folder.display())]
    );
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
        reason.contains("`cpu_affinity: [1023]` was refused")
            && reason.contains("CPUs may be used here"),
        "{reason}"
    );
    assert_eq!(outcome.code, Some(3));
}

#[test]
fn locked_memory_is_faulted_in_when_it_is_mapped() {
    let run = |keys| {
        let outcome = Dataflow::new()
            .node("producer", "new-memory", keys)
            .run(&[])
            .finish();
        (outcome.lines("producer").join("\n"), outcome.code)
    };
    let (printed, _) = run(json!({"outputs": ["out"]}));
    assert!(
        printed.starts_with("locked: false") && !printed.ends_with(" 0"),
        "{printed}"
    );
    let (printed, code) = run(json!({"outputs": ["out"], "memory_lock": true}));
    // Which of both depends on the rights of this user.
    if code == Some(0) {
        assert_eq!(printed, "locked: true, page faults: 0");
    } else {
        assert!(
            printed.contains("`memory_lock: true` was refused")
                && printed.contains("RLIMIT_MEMLOCK"),
            "{printed}"
        );
    }
}

#[test]
fn a_node_is_scheduled_by_deadline_or_the_reason_is_given() {
    let script = "read -r stat < /proc/$$/stat; set -- $stat; echo policy ${41}";
    let scheduling = json!({"policy": "deadline", "runtime": "500us", "deadline": "5ms"});
    let outcome = Dataflow::new()
        .shell("loop", script, json!({"scheduling": scheduling}))
        .run(&[])
        .finish();
    // Which of both depends on the rights of this user.
    if outcome.code == Some(0) {
        assert_eq!(outcome.lines("loop"), ["policy 6"]);
    } else {
        let reason = outcome.ends("loop")[0]["reason"].as_str().unwrap();
        assert!(
            reason.contains(
                "`scheduling: {policy: deadline, runtime: 500us, deadline: 5ms, period: 5ms}`"
            ) && reason.contains("CAP_SYS_NICE"),
            "{reason}"
        );
    }
}

#[test]
fn too_few_descriptors_are_an_error_with_the_required_number() {
    let mut dataflow = Dataflow::new();
    for number in 0..20 {
        dataflow = dataflow.shell(&format!("n{number}"), "true", json!({}));
    }
    let outcome = dataflow.run_with("ulimit -n 150", &[]).finish();
    let stderr = outcome.stderr;
    assert_eq!(outcome.code, Some(1), "{stderr}");
    assert!(
        stderr.contains("needs 224 file descriptors in its keeper (8 for each of 20 nodes"),
        "{stderr}"
    );
    assert!(
        stderr.contains("the hard limit is 150") && stderr.contains("ulimit -Hn 224"),
        "{stderr}"
    );
}

#[test]
fn signals_work_while_the_output_is_not_read() {
    let dataflow =
        Dataflow::new().shell("flood", "echo $$ > started; exec yes $(seq 100)", json!({}));
    let made = Command::new("mkfifo")
        .arg(dataflow.folder().join("started"))
        .status()
        .unwrap();
    assert!(made.success());
    let file = dataflow.write();
    let mut child = dataflow
        .command(&["run", "--json"])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let node = Process::from_pid_text(
        fs::read_to_string(dataflow.folder().join("started"))
            .unwrap()
            .trim(),
    );
    let run = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(run, Signal::INT).unwrap();
    node.assert_ends();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_hostile_control_message_ends_its_sender_alone() {
    let script = "import os, time\nos.write(int(os.environ['NERVURE_CONTROL_FD']), b'\\xff{')\ntime.sleep(1000)\n";
    let keys: Value = json!({"outputs": ["out"]});
    let outcome = Dataflow::new()
        .python("evil", script, keys)
        .node("sink", "sink", json!({"inputs": {"in": "evil/out"}}))
        .run(&[])
        .finish();
    let reason = outcome.ends("evil")[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("broke the control protocol: malformed control message"),
        "{reason}"
    );
    assert!(outcome.lines("sink").contains(&"INPUT_CLOSED in"));
    assert_eq!(outcome.code, Some(3));
}
