//! The nodes work together. Needs the `nervure` command on the PATH.

use std::process::Command;

#[test]
fn the_dataflow_runs() {
    let nervure = |arguments: &[&str]| {
        Command::new("nervure").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
    };
    assert!(nervure(&["build", "dataflow.yml"]).status.success());
    let run = nervure(&["run", "--stop-after", "2s", "dataflow.yml"]);
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(stdout.contains("show") && stdout.contains("| 10"), "{stdout}");
}
