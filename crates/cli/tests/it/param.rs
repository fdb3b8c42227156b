//! `nervure param` on running dataflows.

use std::process::Output;

use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run};

fn param(run: &Run, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = run.command(&["param"]);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .args(arguments)
        .args(["-d", run.name()])
        .output()
        .unwrap();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

fn running() -> Run {
    let mut run = Dataflow::named()
        .node(
            "camera",
            "idle",
            json!({
                "outputs": ["out"],
                "params": {
                    "fps": {"value": 30, "min": 1, "max": 60, "description": "Pictures a second"},
                    "gain": 0.5,
                    "mode": {"value": "fast", "one_of": ["fast", "careful"]},
                    "crop": [0, 0],
                    "device": {"value": "0", "read_only": true},
                },
                "restart_policy": "on-failure",
                "restart_delay": "1ms",
            }),
        )
        .node("sink", "sink", json!({"inputs": {"in": "camera/out"}}))
        .run(&[]);
    run.line("camera", "ready 0");
    run
}

#[test]
fn parameters_are_listed() {
    let run = running();
    let (code, stdout, stderr) = param(&run, &["list"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_snapshot!(stdout);
    let (_, stdout, _) = param(&run, &["list", "camera", "--json"]);
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    let fps = listed["params"]
        .as_array()
        .unwrap()
        .iter()
        .find(|param| param["name"] == "fps")
        .unwrap();
    let expected = json!({
        "node": "camera", "name": "fps", "type": "int", "value": 30, "initial": 30, "min": 1, "max": 60,
        "read_only": false, "description": "Pictures a second",
    });
    assert_eq!(fps, &expected);
    let (code, stdout, stderr) = param(&run, &["list", "sink"]);
    assert_eq!((code, &*stdout), (Some(0), ""));
    assert!(stderr.starts_with("no node has parameters"), "{stderr}");
}

#[test]
fn a_change_reaches_the_node_and_outlives_a_restart() {
    let mut run = running();
    let (code, stdout, stderr) = param(&run, &["set", "camera", "fps", "60"]);
    assert_eq!(
        (code, &*stdout),
        (Some(0), "`fps` of `camera` is 60, it was 30\n"),
        "{stderr}"
    );
    run.line("camera", "PARAM fps 60, and so it is");
    assert_eq!(param(&run, &["get", "camera", "fps"]).1, "60\n");
    run.started("camera").signal(Signal::KILL);
    run.line("camera", "fps is 60");
    run.line("camera", "ready 1");
    param(&run, &["set", "camera", "crop", "[-1, 2.5]"]);
    run.line("camera", "PARAM crop [-1.0,2.5], and so it is");
    param(&run, &["set", "camera", "gain", "-0.5"]);
    run.line("camera", "PARAM gain -0.5, and so it is");
    param(&run, &["set", "camera", "mode", "careful"]);
    run.line("camera", "PARAM mode \"careful\", and so it is");
    assert_eq!(param(&run, &["get", "camera", "mode"]).1, "careful\n");
}

#[test]
fn mistakes_are_explained() {
    let run = running();
    let refused = |arguments: &[&str]| {
        let (code, stdout, stderr) = param(&run, arguments);
        assert_eq!((code, &*stdout), (Some(2), ""), "{stderr}");
        stderr
    };
    let mistakes = [
        ["set", "camera", "fps", "61"].as_slice(),
        &["set", "camera", "fps", "fast"],
        &["set", "camera", "mode", "fats"],
        &["set", "camera", "device", "1"],
        &["get", "camera", "fsp"],
        &["get", "sink", "fps"],
        &["get", "sun", "fps"],
    ];
    let parsed: Vec<_> = mistakes
        .iter()
        .map(|arguments| format!("$ {}\n{}", arguments.join(" "), refused(arguments)))
        .collect();
    assert_snapshot!(parsed.join("\n"));
}
