//! `nervure validate`.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::dataflow::nervure;

fn validate(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let names = files.iter().map(|(name, _)| *name);
    let output = nervure(folder.path())
        .arg("validate")
        .args(names)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    format!(
        "exit code: {}\n----- stdout -----\n{}----- stderr -----\n{}",
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr)
    )
}

const GOOD: &str = "\
nodes:
  - id: source
    path: sh
    inputs: {tick: nervure/timer/hz/30}
    outputs: [image]
  - id: sink
    path: sh
    inputs: {image: source/image}
";

#[test]
fn a_valid_file() {
    assert_snapshot!(validate(&[("good.yml", GOOD)]));
}

#[test]
fn a_file_with_errors_beside_a_valid_one() {
    let bad = GOOD
        .replace("source/image", "source/imaeg")
        .replace("id: sink", "idd: sink");
    assert_snapshot!(validate(&[("bad.yml", &bad), ("good.yml", GOOD)]));
}

fn json_lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn findings_and_graphs_have_a_json_form() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good.yml"), GOOD).unwrap();
    fs::write(
        folder.path().join("bad.yml"),
        GOOD.replace("source/image", "source/imaeg"),
    )
    .unwrap();
    let output = nervure(folder.path())
        .args(["validate", "--json", "good.yml", "bad.yml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let parsed = json_lines(&output);
    assert_eq!(
        (
            &parsed[0]["is_valid"],
            &parsed[0]["nodes"],
            &parsed[0]["edges"]
        ),
        (&json!(true), &json!(2), &json!(1))
    );
    let finding = &parsed[1]["findings"][0];
    assert_eq!(
        (
            &parsed[1]["is_valid"],
            &finding["code"],
            &finding["line"],
            &finding["suggestion"]
        ),
        (
            &json!(false),
            &json!("unknown-output"),
            &json!(8),
            &json!("image")
        )
    );
    let output = nervure(folder.path())
        .args(["graph", "--json", "good.yml"])
        .output()
        .unwrap();
    assert_eq!(
        json_lines(&output)[0]["nodes"][1]["inputs"][0]["name"],
        "image"
    );
}

#[test]
fn errors_have_one_json_form() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("bad.yml"),
        GOOD.replace("source/image", "source/imaeg"),
    )
    .unwrap();
    for command in ["run", "build", "graph", "lint"] {
        let output = nervure(folder.path())
            .args([command, "--json", "bad.yml"])
            .output()
            .unwrap();
        let parsed = json_lines(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {parsed:?}");
        let error = &parsed[0]["error"];
        assert_eq!(
            (parsed.len(), &parsed[0]["message"]),
            (1, &json!("error")),
            "{command}"
        );
        assert_eq!(
            error["message"], "`bad.yml` cannot be used: 1 error",
            "{command}"
        );
        assert_eq!(
            (
                &error["file"],
                &error["line"],
                &error["column"],
                &error["exit_code"]
            ),
            (&json!("bad.yml"), &json!(8), &json!(28), &json!(2)),
            "{command}"
        );
        assert_eq!(error["hint"], "did you mean `image`?", "{command}");
        assert_eq!(error["findings"].as_array().unwrap().len(), 1, "{command}");
        assert!(!output.stderr.is_empty(), "people can read it too");
    }
    for arguments in [
        &["status", "--json", "-d", "no-such"][..],
        &["attach", "node", "--json", "-d", "no-such"],
        &["record", "--json", "-d", "no-such"],
    ] {
        let output = nervure(folder.path()).args(arguments).output().unwrap();
        let error = &json_lines(&output)[0]["error"];
        assert_eq!(
            error["exit_code"].as_i64(),
            output.status.code().map(i64::from),
            "{arguments:?}"
        );
        assert!(
            error["line"].is_null() && error["caused_by"].is_array(),
            "{error}"
        );
    }
}

#[test]
fn a_wrong_command_line_is_an_error_object_with_json() {
    for (arguments, message, hint) in [
        (
            &["stop", "drive", "--json"][..],
            "unexpected argument 'drive' found",
            Some("name a dataflow with `-d drive`"),
        ),
        (
            &["run", "--json"],
            "the following required arguments were not provided:\n  <FILE>",
            Some("nervure run --json <FILE> [ARGUMENT=VALUE|NODE.PARAMETER=VALUE]..."),
        ),
        (
            &["vaildate", "--json", "x.yml"],
            "unrecognized subcommand 'vaildate'",
            Some("a similar subcommand exists: 'validate'"),
        ),
    ] {
        let output = nervure(std::path::Path::new("/"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let lines = json_lines(&output);
        assert_eq!(lines.len(), 1, "{arguments:?}");
        assert_eq!(lines[0]["message"], "error", "{arguments:?}");
        let error = &lines[0]["error"];
        assert_eq!(
            (&error["message"], &error["hint"], &error["exit_code"]),
            (&json!(message), &json!(hint), &json!(2)),
            "{arguments:?}"
        );
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with(&format!("error: {message}")), "{stderr}");
    }
    // After `--` it is an argument of another program.
    let output = nervure(std::path::Path::new("/"))
        .args(["stop", "drive", "--", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

/// Findings of `validate` and exit code of `run` for a dataflow beyond a limit.
fn excesses(text: &str) -> Vec<(i64, String, String)> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("large.yml"), text).unwrap();
    let output = nervure(folder.path())
        .args(["validate", "--json", "large.yml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let run = nervure(folder.path())
        .args(["run", "large.yml"])
        .output()
        .unwrap();
    assert_eq!(
        run.status.code(),
        Some(2),
        "`run` refuses it before the start"
    );
    let report = &json_lines(&output)[0];
    let findings = report["findings"].as_array().unwrap().iter();
    let errors = findings.filter(|finding| finding["code"] == "out-of-range");
    errors
        .map(|finding| {
            assert_eq!(finding["file"], "large.yml");
            assert!(finding["hint"].is_string(), "{finding}");
            let text = |key: &str| finding[key].as_str().unwrap().to_owned();
            (
                finding["line"].as_i64().unwrap(),
                text("message"),
                text("expected"),
            )
        })
        .collect()
}

fn numbered(count: u32, entry: impl Fn(u32) -> String) -> String {
    (0..count).map(entry).collect()
}

#[test]
fn a_node_with_declarations_beyond_a_control_message_is_an_error() {
    let inputs = numbered(1000, |number| format!("      in{number}: source/out\n"));
    let found = excesses(&format!(
        "nodes:\n  - {{id: source, path: sh, outputs: [out]}}\n  - id: sink\n    path: sh\n    inputs:\n{inputs}"
    ));
    let [(line, message, expected)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (*line, expected.as_str()),
        (3, "at most 163840 bytes"),
        "{message}"
    );
    assert!(
        message.starts_with("the declarations of node `sink` take "),
        "{message}"
    );
    assert!(
        message.ends_with("bytes as a control message (1000 inputs, 0 outputs, 0 parameters)"),
        "{message}"
    );
}

#[test]
fn more_counter_rows_than_a_page_has_are_an_error() {
    let outputs = numbered(4097, |number| format!("o{number}, "));
    let found = excesses(&format!(
        "nodes:\n  - {{id: source, path: sh, outputs: [{outputs}]}}\n  - {{id: sink, path: sh, inputs: {{a: source/o1}}}}\n"
    ));
    let rows = "node `source` needs 65553 rows of counters: 16 for each of its 4097 outputs, and 1 for \
                each input that reads one";
    assert!(
        found.contains(&(2, rows.to_owned(), "at most 65536 rows".to_owned())),
        "{found:?}"
    );
}

#[test]
fn more_samples_in_use_than_a_lease_table_has_are_an_error() {
    let sinks = numbered(17, |number| {
        format!(
            "  - {{id: sink{number}, path: sh, inputs: {{a: {{source: source/out, max_held: 131072}}}}}}\n"
        )
    });
    let found = excesses(&format!(
        "nodes:\n  - id: source\n    path: sh\n    outputs:\n      - out\n{sinks}"
    ));
    let message = "2228544 samples of `source/out` may be in use at once";
    let expected = "at most 2097152 samples";
    assert_eq!(found, [(5, message.to_owned(), expected.to_owned())]);
}

#[test]
fn inputs_for_clients_of_services_count_against_the_limit() {
    let clients = numbered(4096, |number| format!("c{number}: server/s, "));
    let found = excesses(&format!(
        "nodes:\n  - {{id: server, path: sh, services: [s]}}\n  - {{id: client, path: sh, clients: {{{clients}}}}}\n"
    ));
    let message = "node `server` has 4096 inputs, one for each client of its services included";
    assert!(
        found.contains(&(2, message.to_owned(), "at most 4095 inputs".to_owned())),
        "{found:?}"
    );
}
