//! Shell completion.

use std::process::Command;

use serde_json::json;

use crate::dataflow::{Dataflow, Run, nervure};

/// Bash's completions of the last of these words, without options unless it begins with a dash.
fn offered(mut command: Command, words: &[&str]) -> Vec<String> {
    command
        .env("NERVURE_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command
        .env("_CLAP_IFS", "\n")
        .args(["--", "nervure"])
        .args(words);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let wants_options = words.last().is_some_and(|word| word.starts_with('-'));
    let is_wanted = |word: &&str| wants_options || !word.starts_with("--");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(is_wanted)
        .map(str::to_owned)
        .collect()
}

fn robot() -> Dataflow {
    Dataflow::named()
        .node(
            "camera",
            "source 1000000 10",
            json!({"outputs": ["out"], "params": {"fps": 30, "gain": 0.5}}),
        )
        .node(
            "planner",
            "sink",
            json!({"inputs": {"in": "camera/out"}, "params": {"speed": 1}}),
        )
}

fn running() -> Run {
    let mut run = robot().run(&[]);
    run.line("planner", "in 1");
    run
}

#[test]
fn commands_are_offered_and_internal_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let offered = |words: &[&str]| offered(nervure(folder.path()), words);
    assert_eq!(offered(&["st"]), ["status", "stop", "start"]);
    assert!(offered(&[""]).contains(&"run".to_owned()));
    assert!(offered(&["__"]).is_empty(), "{:?}", offered(&["__"]));
    assert_eq!(offered(&["topic", "i"]), ["info"]);
    assert_eq!(offered(&["logs", "--level", "w"]), ["warn"]);
    assert!(offered(&["top", "--"]).contains(&"--interval".to_owned()));
}

#[test]
fn running_dataflows_nodes_topics_and_parameters_are_offered() {
    let run = running();
    let offered = |words: &[&str]| offered(run.command(&[]), words);
    let name = run.name();
    assert_eq!(offered(&["stop", "-d", name]), [name]);
    assert_eq!(offered(&["topic", "echo", "-d", name, ""]), ["camera/out"]);
    assert_eq!(
        offered(&["record", &format!("--dataflow={name}"), "cam"]),
        ["camera/out"]
    );
    assert_eq!(offered(&["node", "restart", "-d", name, "p"]), ["planner"]);
    assert_eq!(
        offered(&["logs", "-d", name, "--node", ""]),
        ["camera", "planner"]
    );
    assert_eq!(
        offered(&["param", "set", "-d", name, "camera", ""]),
        ["fps", "gain"]
    );
    assert_eq!(
        offered(&["param", "get", "-d", name, "planner", ""]),
        ["speed"]
    );
    assert!(
        offered(&["topic", "echo", "-d", "no-such-dataflow", ""])
            .iter()
            .all(|word| word.contains(':'))
    );
    let other = running();
    // With several running dataflows, topics have the name of theirs as a prefix.
    let all = offered(&["topic", "info", ""]);
    for one in [&run, &other] {
        assert!(
            all.contains(&format!("{}:camera/out", one.name())),
            "{all:?}"
        );
    }
}

#[test]
fn nodes_and_parameters_of_a_file_are_offered() {
    let dataflow = robot();
    let file = dataflow.write();
    let file = file.file_name().unwrap().to_str().unwrap();
    let offered = |words: &[&str]| offered(dataflow.command(&[]), words);
    assert_eq!(
        offered(&["run", file, ""]),
        ["camera.fps=", "camera.gain=", "planner.speed="]
    );
    assert_eq!(offered(&["run", file, "--clock", "c"]), ["camera"]);
    assert_eq!(offered(&["run", &file[..5]]), [file]);
}

#[test]
fn the_script_works_in_bash() {
    let folder = tempfile::tempdir().unwrap();
    let command = nervure(folder.path());
    let program = std::path::Path::new(command.get_program()).to_owned();
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let script = "
        source <(nervure completions bash)
        complete -p nervure > registered
        COMP_WORDS=(nervure sta); COMP_CWORD=1; COMP_TYPE=9
        _clap_complete_nervure nervure sta nervure
        echo \"${COMPREPLY[@]}\"
    ";
    let output = Command::new("bash")
        .args(["-c", script])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        stdout.trim(),
        "status start",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let registered = std::fs::read_to_string(folder.path().join("registered")).unwrap();
    assert!(
        registered.contains("-F _clap_complete_nervure nervure"),
        "{registered}"
    );
}
