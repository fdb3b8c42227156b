//! Parameters and environment variables on the command line of `run` and `replay`.

use insta::assert_snapshot;
use serde_json::json;

use crate::dataflow::{Dataflow, output};

/// Stderr without warnings.
fn error(stderr: &str) -> &str {
    &stderr[stderr.rfind("error: ").unwrap()..]
}

/// A node with parameters, and one that writes its arguments and variables.
fn dataflow() -> Dataflow {
    Dataflow::named()
        .node(
            "camera.left",
            "idle",
            json!({"params": {
                "fps": {"value": 30, "min": 1, "max": 60}, "gain": 0.5, "mode": "auto", "crop": [0, 0],
                "device": {"value": 0, "read_only": true},
            }}),
        )
        .raw(json!({
            "id": "teller", "path": "sh", "args": ["-c", "echo \"$$0, $$RATE $$MODE\"", "${RATE:-none} given"],
            "env": {"MODE": "slow"},
        }))
}

#[test]
fn parameters_and_variables_are_set_for_one_run() {
    let mut run = dataflow().run(&[
        "camera.left.fps=60",
        "camera.left.mode=7",
        "camera.left.crop=[1, 2]",
        "camera.left.device=1",
        "--env",
        "RATE=a=b c",
        "--env",
        "MODE=fast",
        "--stop-after",
        "1min",
    ]);
    let mut lines = Vec::new();
    for _ in 0..5 {
        let parsed = run.until("line of a node", |message| message["stream"] == "stdout");
        if parsed["node"] == "camera.left" {
            lines.push(parsed["text"].as_str().unwrap().to_owned());
        }
    }
    run.signal(rustix::process::Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.lines("teller"), ["a=b c given, a=b c fast"]);
    let camera = outcome.lines("camera.left");
    for line in [
        "fps is 60",
        "gain is 0.5",
        "mode is \"7\"",
        "crop is [1,2]",
        "device is 1",
    ] {
        assert!(camera.contains(&line), "{line}: {camera:?}");
    }
}

#[test]
fn a_detached_dataflow_has_them_too() {
    let dataflow = dataflow();
    let mut command = dataflow.command(&["run", "--detach", "--env", "RATE=5"]);
    command.arg(dataflow.write()).arg("camera.left.fps=15");
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(0), "{stderr}");
    let said = |arguments: &[&str]| {
        output(dataflow.command(&[arguments, &["-d", dataflow.name()]].concat()))
    };
    let fps = said(&["param", "get", "camera.left", "fps"]);
    let lines = said(&["logs", "--node", "teller"]);
    let stopped = said(&["stop"]);
    assert_eq!(stopped.0, Some(0), "{}", stopped.2);
    assert_eq!(fps.1, "15\n", "{}", fps.2);
    assert!(lines.1.contains("5 given, 5 slow"), "{lines:?}");
}

#[test]
fn mistakes_are_explained_before_anything_starts() {
    let dataflow = dataflow();
    let file = dataflow.write();
    let mut parsed = String::new();
    for arguments in [
        &["camera.left.fsp=60"][..],
        &["camera.rihgt.fps=60"],
        &["teller.fps=60"],
        &["camera.left.fps=fast"],
        &["camera.left.fps=100"],
        &["fps=60"],
        &["camera.left.fps"],
        &["--env", "2FAST=1"],
        &["--env", "RATE"],
    ] {
        let mut command = dataflow.command(&["run"]);
        command.arg(&file).args(arguments);
        let (code, stdout, stderr) = output(command);
        assert_eq!((code, &*stdout), (Some(2), ""), "{arguments:?}");
        parsed += &format!(
            "$ nervure run FILE {}\n{}\n",
            arguments.join(" "),
            error(&stderr)
        );
    }
    assert_snapshot!(parsed);
    assert!(
        !dataflow.folder().join("logs").exists(),
        "nothing was started"
    );
}

#[test]
fn a_replay_takes_them_for_the_nodes_that_are_not_replaced() {
    let camera = |dataflow: Dataflow| {
        dataflow
            .node(
                "source",
                "source 5 0",
                json!({"outputs": ["out"], "params": {"fps": 30}}),
            )
            .node(
                "sink",
                "sink",
                json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}),
            )
            .node(
                "idler",
                "idle",
                json!({"params": {"fps": 30}, "inputs": {"in": "source/out"}}),
            )
    };
    let recorded = camera(Dataflow::named()).raw(json!({
        "id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o ${RECORDING}",
        "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
    }));
    let recording = recorded.folder().join("one.mcap");
    let variable = format!("RECORDING={}", recording.display());
    let mut run = recorded.run(&["--env", &variable]);
    run.ended("recorder");
    run.signal(rustix::process::Signal::INT);
    let dataflow = camera(Dataflow::named());
    let replay = |arguments: &[&str]| {
        let mut command = dataflow.command(&["replay", "--json"]);
        command
            .arg(&recording)
            .arg(dataflow.write())
            .args(arguments);
        output(command)
    };
    let (code, stdout, stderr) = replay(&["idler.fps=7"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("fps is 7"), "{stdout}");
    let (code, _, stderr) = replay(&["source.fps=7"]);
    assert_eq!(code, Some(2));
    assert_snapshot!(error(&stderr));
    let mut alone = dataflow.command(&["replay", "--env", "A=b"]);
    alone.arg(&recording);
    let (code, _, stderr) = output(alone);
    assert_eq!(code, Some(2));
    assert!(
        stderr.starts_with("error: `--env` needs a dataflow file\n"),
        "{stderr}"
    );
}
