//! `nervure lint` on a running dataflow, and on a file.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::Dataflow;

/// Code and subject of each hint, and the exit code.
fn hints(stdout: &[u8]) -> Vec<(String, String)> {
    let parsed: Value = serde_json::from_slice(stdout).unwrap();
    let text = |hint: &Value, key: &str| hint[key].as_str().unwrap().to_owned();
    parsed["hints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hint| (text(hint, "code"), text(hint, "about")))
        .collect()
}

#[test]
fn a_running_dataflow_gets_hints_with_their_places() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 1", json!({"outputs": ["out"]}))
        .node(
            "slow",
            "sink 50",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 2}}}),
        )
        .node(
            "steady",
            "source 1000000 10",
            json!({"outputs": ["out", "spare"]}),
        )
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": {"source": "steady/out", "expect_every": "30s"}}}),
        )
        .run(&[]);
    run.line("slow", "in ");
    run.line("sink", "in ");
    let output = run
        .command(&["lint", "--json", "--window", "1s", "-d", run.name()])
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let expected = [
        ("slow-consumer", "source/out -> slow/in"),
        ("loose-expectation", "steady/out -> sink/in"),
        ("unread-output", "steady/spare"),
    ];
    let mut found = hints(&output.stdout);
    found.sort_by_key(|(code, _)| expected.iter().position(|(known, _)| known == code));
    let found: Vec<_> = found
        .iter()
        .map(|(code, about)| (code.as_str(), about.as_str()))
        .collect();
    assert_eq!(found, expected);
    let text = run
        .command(&["lint", "--window", "1s", "-d", run.name()])
        .output()
        .unwrap()
        .stdout;
    let text = String::from_utf8(text).unwrap();
    let place = format!(
        "source/out -> slow/in ({}.yml:1): slow-consumer",
        run.name()
    );
    assert!(
        text.contains(&place) && text.contains("3 hints on "),
        "{text}"
    );
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_file_gets_hints_and_one_without_any_gets_none() {
    let camera = json!({"outputs": {"image": {"type": "std/Image@1"}}});
    let deep = json!({"inputs": {"image": {"source": "camera/image", "queue_size": 1000}}});
    let dataflow = Dataflow::new()
        .shell("camera", "", camera.clone())
        .shell("display", "", deep);
    let file = dataflow.write();
    let output = dataflow
        .command(&["lint", "--json", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        hints(&output.stdout),
        [("deep-queue".to_owned(), "display/image".to_owned())]
    );

    let plain = json!({"inputs": {"image": "camera/image"}});
    let dataflow = Dataflow::new()
        .shell("camera", "", camera)
        .shell("display", "", plain);
    let file = dataflow.write();
    let output = dataflow
        .command(&["lint", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .starts_with("no hints on ")
    );

    std::fs::write(&file, "nodes: 7").unwrap();
    let output = dataflow
        .command(&["lint", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
