//! Transforms between frames, in dataflows of Rust nodes.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, output};

#[test]
fn a_node_looks_up_what_two_others_send() {
    let sends = || json!({"outputs": {"pose": {"type": "std/Transform@1"}}});
    let outcome = Dataflow::new()
        .node("localization", "pose map odom 10 20", sends())
        .node("odometry", "pose odom base 1 2", sends())
        .node("numbers", "source 3", json!({"outputs": ["out"]}))
        .node(
            "consumer",
            "look-up map base",
            json!({
                "transforms": true,
                "inputs": {"number": {"source": "numbers/out", "queue_policy": "block"}},
            }),
        )
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(
        outcome.lines("consumer"),
        [
            "0 [16.5, 0.0, 0.0]",
            "1 [16.5, 0.0, 0.0]",
            "2 [16.5, 0.0, 0.0]"
        ]
    );
}

#[test]
fn loops_of_transforms_hold_up_no_end_and_cost_no_sample() {
    let relay = |source: &str| {
        json!({
            "transforms": true,
            "inputs": {"in": {"source": source, "queue_policy": "block"}},
            "outputs": {"out": null, "pose": {"type": "std/Transform@1"}},
        })
    };
    let outcome = Dataflow::new()
        .node("numbers", "source 100", json!({"outputs": ["out"]}))
        .node("first", "pose-relay map odom map", relay("numbers/out"))
        .node("second", "pose-relay odom base map", relay("first/out"))
        .node(
            "last",
            "sink",
            json!({"inputs": {"in": {"source": "second/out", "queue_policy": "block"}}}),
        )
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(
        outcome.lines("first"),
        ["sent", "passed 100, [1.0, 0.0, 0.0]"]
    );
    let last = outcome.lines("last");
    assert_eq!(
        last.iter().filter(|line| line.starts_with("in ")).count(),
        100,
        "{last:?}"
    );
    assert_eq!(
        outcome.lines("second"),
        ["sent", "passed 100, [2.0, 0.0, 0.0]"]
    );
}

/// A dataflow that runs, with `map -> odom` of a node, `odom -> camera` of the file, and a transform that
/// is not valid.
fn running() -> Run {
    let keys = || {
        json!({
            "transforms": true,
            "inputs": {"tick": "nervure/timer/hz/10"},
            "outputs": {"pose": {"type": "std/Transform@1", "history": 10}},
        })
    };
    let mount = json!([{
        "parent": "odom", "child": "camera", "translation": [0, 0, 0.5], "rpy": [0, 0, std::f64::consts::FRAC_PI_2],
    }]);
    let mut run = Dataflow::named()
        .key("static_transforms", mount)
        .node("localization", "pose-relay map odom map", keys())
        .node("liar", "pose-relay odom odom map", keys())
        .run(&[]);
    let mut senders = 0;
    run.until("both have sent", |message| {
        senders += usize::from(message["text"] == "sent");
        senders == 2
    });
    run
}

fn tf(run: &Run, arguments: &[&str]) -> Command {
    run.command(&[&["tf"], arguments, &["-d", run.name()]].concat())
}

#[test]
fn the_tree_of_frames_is_shown_with_what_is_wrong() {
    let run = running();
    let (code, stdout, stderr) = output(tf(&run, &["tree", "--window", "300ms"]));
    assert_eq!(code, Some(3), "{stderr}");
    let lines: Vec<&str> = stdout.lines().map(str::trim_end).collect();
    let [_, map, odom, camera] = lines[..] else {
        panic!("{stdout}");
    };
    assert_eq!(map, "map");
    assert!(
        odom.starts_with("  odom      localization/pose  "),
        "{odom}"
    );
    assert!(odom.contains(" Hz  "), "{odom}");
    assert_eq!(camera, "    camera  static");
    let refused = "warning: liar/pose: 2 transforms refused: `odom -> odom` would make the frame its own ancestor";
    assert!(stderr.contains(refused), "{stderr}");
    let (_, stdout, _) = output(tf(&run, &["tree", "--window", "300ms", "--json"]));
    let tree: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(tree["frames"][1]["frame"], "odom");
    assert_eq!(tree["frames"][1]["topic"], "localization/pose");
    assert_eq!(tree["frames"][0]["topic"], Value::Null);
    assert_eq!(tree["refused"][0]["count"], 2);
}

#[test]
fn a_pose_and_the_static_transforms_are_shown() {
    let run = running();
    let echo = |arguments: &[&str]| {
        let fixed = ["echo", "-n", "1", "--interval", "300ms"];
        output(tf(&run, &[&fixed, arguments].concat()))
    };
    let (code, stdout, stderr) = echo(&["map", "camera"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.starts_with("map -> camera, "), "{stdout}");
    let pose = "\n  translation [1.000, 0.000, 0.500] m\n  \
         rotation    [0.000, 0.000, 0.707, 0.707] (x, y, z, w), roll, pitch, yaw [0.000, 0.000, 90.000] degrees\n";
    assert!(stdout.ends_with(pose), "{stdout}");
    let (_, stdout, _) = echo(&["camera", "odom", "--json"]);
    let pose: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(pose["stamp_utc_nanos"], Value::Null);
    assert_eq!(pose["translation"], json!([0.0, 0.0, -0.5]));
    let (code, stdout, stderr) = output(tf(&run, &["static"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.starts_with("odom -> camera\n  translation [0.000, 0.000, 0.500] m\n"),
        "{stdout}"
    );
}

#[test]
fn a_pose_that_does_not_come_is_explained_until_the_end() {
    let run = running();
    let mut echo = tf(&run, &["echo", "map", "camara", "--interval", "100ms"]);
    let mut echo = echo.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stderr = BufReader::new(echo.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    assert!(
        line.contains("there is no frame `camara`; did you mean `camera`?"),
        "{line}"
    );
    run.signal(Signal::INT);
    assert_eq!(echo.wait().unwrap().code(), Some(3));
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}
