//! `nervure validate`.

use std::fs;

use insta::assert_snapshot;

use crate::dataflow::nervure;

fn validate(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let names = files.iter().map(|(name, _)| *name);
    let output = nervure(folder.path()).arg("validate").args(names).output().unwrap();
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
    let bad = GOOD.replace("source/image", "source/imaeg").replace("id: sink", "idd: sink");
    assert_snapshot!(validate(&[("bad.yml", &bad), ("good.yml", GOOD)]));
}
