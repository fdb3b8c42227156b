//! Names and texts from outside with control sequences for a terminal.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, nervure, output};

/// Clears the screen (7-bit and 8-bit form), sets the title, returns the carriage, reverses the text, deletes.
const HOSTILE: &str = "x\x1b[2J\u{9b}31m\x1b]0;title\x07\r\u{202e}\x7fy";

fn assert_harmless(text: &str) {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || c == '\u{202e}';
    assert!(!text.contains(steers), "{text:?}");
}

/// Writes a minimal MCAP file with one message: <https://mcap.dev/spec>.
fn write_recording(file: &Path, topic: &str) {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let record = |kind: u8, content: Vec<u8>| {
        [&[kind][..], &(content.len() as u64).to_le_bytes(), &content].concat()
    };
    const MAGIC: &[u8] = b"\x89MCAP0\r\n";
    let channel = [
        &1_u16.to_le_bytes()[..],
        &[0; 2],
        &text(topic),
        &text("json"),
        &[0; 4],
    ]
    .concat();
    let message = [&1_u16.to_le_bytes()[..], &[0; 4], &[0; 16], b"{}"].concat();
    let records = [
        MAGIC.to_vec(),
        record(0x01, [text(""), text(HOSTILE)].concat()),
        record(0x04, channel),
        record(0x05, message),
        record(0x0f, vec![0; 4]),
        record(0x02, vec![0; 20]),
        MAGIC.to_vec(),
    ];
    fs::write(file, records.concat()).unwrap();
}

#[test]
fn control_sequences_in_a_recording_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let topic = format!("/{HOSTILE}/image");
    write_recording(&folder.path().join("one.mcap"), &topic);
    let said = |arguments: &[&str]| {
        let mut command = nervure(folder.path());
        command.args(arguments);
        output(command)
    };
    let (code, stdout, stderr) = said(&["info", "one.mcap"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_harmless(&stdout);
    assert!(
        stdout.contains("/x\\u001b[2J\\u009b31m\\u001b]0;title\\u0007\\u000d\\u202e\\u007fy/image"),
        "{stdout}"
    );
    let (_, stdout, _) = said(&["info", "one.mcap", "--json"]);
    assert_harmless(&stdout);
    let parsed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(parsed["topics"][0]["topic"], topic.as_str());
    let (code, stdout, stderr) = said(&["replay", "one.mcap", "--rename", "none=a/b"]);
    assert_eq!(code, Some(2));
    assert_harmless(&(stdout + &stderr));
}

#[test]
fn control_sequences_of_nodes_and_files_do_not_reach_the_terminal() {
    let mut run = Dataflow::named()
        .node(
            "camera",
            "idle",
            json!({"outputs": ["out"], "params": {"mode": {"value": HOSTILE, "description": HOSTILE}}}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "camera/out"}}))
        .shell("bad", "printf 'x\\033[2J\\302\\233y\\n' >&2; exit 7", json!({"name": HOSTILE}))
        .run(&[]);
    let (mut has_ended, mut is_ready) = (false, false);
    run.until("end of one and start of the other", |message| {
        has_ended |= message["message"] == "node_ended" && message["id"] == "bad";
        is_ready |= message["node"] == "camera" && message["text"] == "ready 0";
        has_ended && is_ready
    });
    let mut all = String::new();
    for arguments in [
        &["status"][..],
        &["logs"],
        &["param", "list"],
        &["param", "get", "camera", "mode"],
        &["param", "set", "camera", "mode", "\u{9b}2J"],
        &["param", "get", "camera", "mode", "--json"],
        &["top", "-n", "1", "--interval", "10ms"],
        &["topic", "list"],
        &["node", "stop", HOSTILE],
    ] {
        let (_, stdout, stderr) = output(run.command(&[arguments, &["-d", run.name()]].concat()));
        all += &stdout;
        all += &stderr;
    }
    assert_harmless(&all);
    for shown in [
        "x\\u001b[2J",
        "`mode` of `camera` is \"\\u009b2J\"",
        "no node `x\\u001b[2J",
    ] {
        assert!(all.contains(shown), "{shown}: {all}");
    }
    run.signal(Signal::INT);
    assert_harmless(&run.finish().stderr);
}
