//! `nervure run`: exit codes, restarts, output, logs.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::dataflow::{Dataflow, nervure};

#[test]
fn a_dataflow_without_failures_is_a_success() {
    let outcome = Dataflow::new()
        .shell("good", "echo fine", json!({}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.summary()["is_perfect"], true);
}

#[test]
fn a_failed_node_is_reported_with_its_last_lines() {
    let outcome = Dataflow::new()
        .shell("good", "true", json!({}))
        .shell(
            "bad",
            "for n in $(seq 30); do echo line $n >&2; done; exit 7",
            json!({}),
        )
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(3));
    let failed = &outcome.summary()["failed"];
    assert_eq!(
        (&failed[0]["id"], &failed[0]["code"]),
        (&json!("bad"), &json!(7))
    );
    assert_eq!(
        failed[0]["stderr_tail"].as_array().unwrap().last().unwrap(),
        "line 30"
    );
    assert_eq!(failed.as_array().unwrap().len(), 1);
}

#[test]
fn a_node_killed_by_a_signal_failed() {
    let outcome = Dataflow::new()
        .shell("bad", "kill -SEGV $$", json!({}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(3));
    assert!(
        outcome.ends("bad")[0]["reason"]
            .as_str()
            .unwrap()
            .contains("SIGSEGV")
    );
}

#[test]
fn a_path_that_is_no_program_is_reported_and_the_other_nodes_run() {
    let dataflow = Dataflow::new().shell("good", "echo fine", json!({}));
    let script = dataflow.folder().join("orphan.sh");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let outcome = dataflow
        .shell("bad", "", json!({"path": "./orphan.sh", "args": []}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(3));
    let reason = outcome.ends("bad")[0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("could not be started: the interpreter in the first line of"),
        "{reason}"
    );
    assert_eq!(outcome.lines("good"), ["fine"]);
}

/// Fails at its first two starts.
const THIRD_TIME_LUCKY: &str = "echo x >> starts; test $(wc -l < starts) -ge 3";

#[test]
fn on_failure_restarts_until_the_node_succeeds() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let outcome = Dataflow::new()
        .shell("node", THIRD_TIME_LUCKY, keys)
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "it went well in the end");
    let ends: Vec<_> = outcome
        .ends("node")
        .iter()
        .map(|end| (&end["code"], &end["restarts"]))
        .collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(
        ends,
        [(&json!(1), &yes), (&json!(1), &yes), (&json!(0), &no)]
    );
}

#[test]
fn never_restarts_never() {
    let outcome = Dataflow::new()
        .shell("node", THIRD_TIME_LUCKY, json!({"restart_policy": "never"}))
        .run(&[])
        .finish();
    assert_eq!((outcome.code, outcome.ends("node").len()), (Some(3), 1));
}

#[test]
fn the_number_of_restarts_is_limited() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms", "max_restarts": 4});
    let outcome = Dataflow::new()
        .shell("node", "exit 1", keys)
        .run(&[])
        .finish();
    assert_eq!((outcome.code, outcome.ends("node").len()), (Some(3), 5));
    let reason = outcome.ends("node")[4]["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "exited with code 1; not started again: 4 restarts are spent (`max_restarts`)"
    );
}

#[test]
fn always_restarts_until_the_dataflow_stops() {
    let keys = json!({"restart_policy": "always", "restart_delay": "1ms"});
    let mut run = Dataflow::new()
        .shell("node", "echo again", keys)
        .run(&["--stop-after", "1h"]);
    for _ in 0..3 {
        run.line("node", "again");
    }
    run.signal(rustix::process::Signal::HUP);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome
            .ends("node")
            .iter()
            .all(|end| end["failed"] == false)
    );
}

#[test]
fn stop_after_ends_the_run_normally() {
    let outcome = Dataflow::new()
        .shell("node", "sleep 1000", json!({}))
        .run(&["--stop-after", "50ms"])
        .finish();
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.ends("node")[0]["signal"], 15);
}

#[test]
fn a_flood_of_output_is_complete_in_the_log_and_lines_not_shown_are_counted() {
    const LINES: usize = 100_000;
    let script = format!("seq {LINES}");
    let outcome = Dataflow::new()
        .shell("flood", &script, json!({}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0));
    let logged: Vec<Value> = outcome.log_file("flood");
    let numbers = logged
        .iter()
        .filter(|record| record["stream"] == "stdout")
        .map(|record| record["text"].as_str().unwrap());
    assert!(numbers.eq((1..=LINES).map(|number| number.to_string())));
    let shown = outcome
        .lines("flood")
        .iter()
        .filter(|line| line.parse::<usize>().is_ok())
        .count();
    let unsaid: usize = outcome
        .lines("nervure")
        .iter()
        .filter_map(|line| {
            line.strip_suffix(
                " lines of node `flood` came too fast to be shown; its log file has them",
            )
        })
        .map(|count| count.parse::<usize>().unwrap())
        .sum();
    assert!(
        shown + unsaid >= LINES,
        "{shown} lines are shown and {unsaid} counted"
    );
}

#[test]
fn a_disk_that_does_not_answer_stops_nothing() {
    // A pipe without a reader in the place of the log: opening it blocks, like a write to a disk that hangs.
    let script = "mkfifo \"$(echo logs/test/*)/node.jsonl\"; echo made; yes $(seq 1000) | head -n 6000; exit 1";
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms", "max_restarts": 1});
    let mut run = Dataflow::new()
        .shell("node", script, keys)
        .run(&["--log-level", "warn"]);
    assert_eq!(run.ended("node")["restarts"], true);
    assert_eq!(run.ended("node")["restarts"], false);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3));
    // Twice 6,001 lines, the keeper's lines about the ends of the node, and one of mkfifo the second time.
    let said = outcome.lines("nervure");
    let lost = said.iter().find_map(|line| {
        line.strip_suffix(" lines are not in the log files: the disk takes nothing")
    });
    let lost: usize = lost.unwrap_or_else(|| panic!("{said:?}")).parse().unwrap();
    assert!((12_002..12_020).contains(&lost), "{lost}");
}

#[test]
fn a_limit_on_file_sizes_costs_log_lines_and_not_the_keeper() {
    let script = "yes $(seq 1000) | head -n 1000";
    let outcome = Dataflow::new()
        .shell("node", script, json!({}))
        .run_with("ulimit -f 1000", &[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let said = outcome.lines("nervure");
    assert!(
        said.iter()
            .any(|line| line.contains("/node.jsonl cannot be written (File too large")),
        "{said:?}"
    );
    let is_sum =
        |line: &&&str| line.contains(" lines are not in the log of `node`: File too large");
    let lost = said
        .iter()
        .find(is_sum)
        .unwrap_or_else(|| panic!("{said:?}"));
    let lost: usize = lost.split(' ').next().unwrap().parse().unwrap();
    let written = outcome
        .log_file("node")
        .iter()
        .filter(|record| record["stream"] == "stdout")
        .count();
    // And the keeper's line about the end of the node.
    assert_eq!(
        written + lost,
        1001,
        "every line is in the file, or counted"
    );
}

#[test]
fn a_run_without_logs_leaves_none() {
    let dataflow = Dataflow::new().shell("node", "echo one", json!({}));
    let outcome = dataflow
        .run_with("HOME=/nonexistent", &["--no-logs"])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.lines("node"), ["one"]);
    assert_eq!(outcome.summary()["log_folder"], Value::Null);
    assert!(!outcome.folder().join("logs").exists());
}

#[test]
fn an_invalid_limit_of_the_logs_is_an_error() {
    let dataflow = Dataflow::new().shell("node", "true", json!({}));
    let file = dataflow.write();
    let output = dataflow
        .command(&["run"])
        .arg(file)
        .env("NERVURE_LOG_LIMIT", "500")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("error: NERVURE_LOG_LIMIT: `500` has no unit"),
        "{stderr}"
    );
}

#[test]
fn strange_output_becomes_records() {
    let script = r"printf 'WARN: caf\303\251 \377\nlast without end' >&2; printf '\033[2Jx\n'";
    let outcome = Dataflow::new()
        .shell("node", script, json!({}))
        .run(&[])
        .finish();
    let records = outcome.log_file("node");
    let record = |text: &str| {
        records
            .iter()
            .find(|record| record["text"] == text)
            .cloned()
            .unwrap()
    };
    assert_eq!(record("WARN: caf\u{e9} \u{fffd}")["level"], "warn");
    assert_eq!(record("last without end")["stream"], "stderr");
    assert_eq!(record("\x1b[2Jx")["stream"], "stdout");
}

#[test]
fn a_module_that_is_missing_names_the_python() {
    let outcome = Dataflow::new()
        .python("node", "import no_such_module_at_all\n", json!({}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(3));
    let lines = outcome.lines("node");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("it ran on /") && line.contains("python3")),
        "{lines:?}"
    );
}

#[test]
fn the_active_environment_is_used_and_a_broken_one_is_an_error() {
    let dataflow = Dataflow::new().python("node", "", json!({}));
    let file = dataflow.write();
    let bin = dataflow.folder().join("venv/bin");
    fs::create_dir_all(&bin).unwrap();
    let run = || {
        let mut command = dataflow.command(&["run"]);
        command
            .arg(&file)
            .env("VIRTUAL_ENV", bin.parent().unwrap())
            .output()
            .unwrap()
    };
    let output = run();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("VIRTUAL_ENV is `") && stderr.contains("no `bin/python` in it"),
        "{stderr}"
    );
    fs::write(
        bin.join("python"),
        "#!/bin/sh\necho \"this python runs ${1##*/}, unbuffered $PYTHONUNBUFFERED\"\n",
    )
    .unwrap();
    fs::set_permissions(
        bin.join("python"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let stdout = String::from_utf8(run().stdout).unwrap();
    assert_eq!(stdout, "node    | this python runs node.py, unbuffered 1\n");
}

#[test]
fn output_of_nodes_goes_to_stdout_and_all_else_to_stderr() {
    let dataflow = Dataflow::new().shell("camera", "echo data; echo talk >&2; exit 1", json!({}));
    let file = dataflow.write();
    let output = dataflow.command(&["run"]).arg(file).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "camera  | data\n"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    for expected in [
        "camera  | talk",
        "nervure | camera: exited with code 1",
        "node `camera` failed",
        "logs: ",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert!(
        !stderr.contains("stack backtrace") && !stderr.contains('\x1b'),
        "{stderr}"
    );
}

#[test]
fn lines_below_the_log_level_are_not_shown() {
    let script = "echo INFO: small; echo ERROR: big";
    let outcome = Dataflow::new()
        .shell("node", script, json!({}))
        .run(&["--log-level", "warn"])
        .finish();
    assert_eq!(outcome.lines("node"), ["ERROR: big"]);
    assert_eq!(
        outcome
            .log_file("node")
            .iter()
            .filter(|record| record["stream"] == "stdout")
            .count(),
        2
    );
}

#[test]
fn a_reader_that_leaves_stops_the_run() {
    let dataflow = Dataflow::new().shell(
        "node",
        "while :; do echo again; sleep 0.01; done",
        json!({}),
    );
    let file = dataflow.write();
    for arguments in [&["run"][..], &["run", "--json"]] {
        let mut command = dataflow.command(arguments);
        let mut child = command
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.contains("nervure | stdout was closed: stopping the nodes\n"),
            "{stderr}"
        );
    }
}

#[test]
fn a_full_disk_under_the_output_is_reported_and_the_dataflow_goes_on() {
    let script = "for n in 1 2 3 4 5 6; do echo line $n; sleep 0.05; done; echo > done";
    let dataflow = Dataflow::new().shell("node", script, json!({}));
    let file = dataflow.write();
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for arguments in [&["run"][..], &["run", "--json"]] {
        let output = dataflow
            .command(arguments)
            .arg(&file)
            .stdout(full())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let reports = stderr
            .matches("cannot write to stdout: No space left on device")
            .count();
        assert_eq!(reports, 1, "{stderr}");
        assert!(
            stderr.contains("could not be written to stdout: No space left on device"),
            "{stderr}"
        );
        fs::remove_file(dataflow.folder().join("done")).expect("the node has done its work");
    }
    let status = dataflow
        .command(&["run"])
        .arg(&file)
        .stdout(full())
        .stderr(full())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
    fs::remove_file(dataflow.folder().join("done")).expect("the node has done its work");
}

#[test]
fn a_log_folder_that_cannot_be_created_is_an_error() {
    let dataflow = Dataflow::new().shell("node", "true", json!({}));
    let file = dataflow.write();
    let output = dataflow
        .command(&["run"])
        .arg(&file)
        .env("NERVURE_LOG_DIR", &file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("log folder") && stderr.contains("hint: set NERVURE_LOG_DIR"),
        "{stderr}"
    );
}

#[test]
fn a_keeper_that_is_started_by_hand_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = nervure(folder.path()).arg("__keeper").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("started by `nervure run`, not by hand"),
        "{stderr}"
    );
}

#[test]
fn a_name_can_be_given() {
    let outcome = Dataflow::new()
        .shell("node", "true", json!({}))
        .run(&["--name", "other"])
        .finish();
    assert!(
        outcome.summary()["log_folder"]
            .as_str()
            .unwrap()
            .contains("/logs/other/")
    );
    let outcome = Dataflow::new()
        .shell("node", "true", json!({}))
        .run(&["--name", "../other"])
        .finish();
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("`--name ../other`"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_file_whose_dataflow_runs_is_not_started_again_under_that_name() {
    let dataflow = Dataflow::named().shell("node", "echo up; sleep 1000", json!({}));
    let (file, name) = (
        dataflow.folder().join(format!("{}.yml", dataflow.name())),
        dataflow.name().to_owned(),
    );
    let mut run = dataflow.run(&[]);
    run.line("node", "up");
    for arguments in [
        &["run"][..],
        &["run", "--detach"],
        &["run", "--name", &name],
    ] {
        let output = run.command(arguments).arg(&file).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(&format!(
                "error: dataflow `{name}` already runs from this file: keeper "
            )),
            "{stderr}"
        );
        assert!(
            stderr.contains("hint: stop it with `nervure stop -d ")
                && stderr.contains("`--name NAME`"),
            "{stderr}"
        );
    }
    let other = format!("{name}-2");
    let arguments = ["run", "--name", &other, "--stop-after", "10ms"];
    let output = run.command(&arguments).arg(&file).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let copy = run.folder().join("copy");
    fs::create_dir(&copy).unwrap();
    let copied = copy.join(file.file_name().unwrap());
    fs::copy(&file, &copied).unwrap();
    let output = run
        .command(&["run", "--stop-after", "10ms"])
        .arg(&copied)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    run.signal(rustix::process::Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn the_state_of_nodes_is_shown() {
    let sink = json!({"inputs": {"in": {"source": "source/out", "queue_size": 2}}});
    let mut run = Dataflow::new()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node("stuck", "sink 1000000", sink.clone())
        .node("halted", "sink", sink)
        .shell("bad", "exit 1", json!({}))
        .shell(
            "unlucky",
            "sleep 0.01; exit 1",
            json!({"restart_policy": "on-failure", "restart_delay": "1h"}),
        )
        .run(&["--grace", "0ms"]);
    run.line("halted", "in 1");
    run.started("halted").signal(rustix::process::Signal::STOP);
    let expected = ["runs", "takes-nothing", "halted", "failed", "restarts"];
    let shown = run.until("states", |message| {
        let nodes = message["nodes"].as_array();
        nodes.is_some_and(|nodes| {
            nodes
                .iter()
                .map(|node| node["state"].as_str().unwrap())
                .eq(expected)
        })
    });
    assert!(
        shown["nodes"][1]["took_nothing_seconds"].as_f64().unwrap() >= 1.0,
        "{shown}"
    );
    // Each warning names the edge with the most losses since the last one, which may be either.
    let warning = run.until("warning", |message| {
        let text = message["text"].as_str().unwrap_or_default();
        text.starts_with("source/out -> ") && text.contains("the consumer took nothing for ")
    });
    let text = warning["text"].as_str().unwrap();
    assert!(!text.contains("`block`"), "{text}");
    run.signal(rustix::process::Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3));
    assert_eq!(outcome.summary()["nodes"][4]["restarts"], 1);
}

#[test]
fn plain_lines_name_nodes_in_trouble_and_the_summary_those_that_were_restarted() {
    let dataflow = Dataflow::new()
        .shell("bad", "exit 1", json!({}))
        .shell(
            "unlucky",
            THIRD_TIME_LUCKY,
            json!({"restart_policy": "on-failure", "restart_delay": "1ms"}),
        )
        .shell("good", "sleep 5.6", json!({}));
    let output = dataflow
        .command(&["run"])
        .arg(dataflow.write())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(" lost; `bad` failed\n"), "{stderr}");
    assert!(
        stderr.contains("\nnode `unlucky` was restarted 2 times\n"),
        "{stderr}"
    );
}
