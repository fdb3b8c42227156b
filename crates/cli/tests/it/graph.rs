//! `nervure graph`.

use std::fs;

use insta::assert_snapshot;

use crate::dataflow::nervure;

#[test]
fn a_graph() {
    let folder = tempfile::tempdir().unwrap();
    let file = "\
nodes:
  - id: camera
    path: sh
    inputs: {tick: nervure/timer/hz/30}
    outputs: [image]
  - id: detector
    path: sh
    inputs: {image: {source: camera/image, queue_policy: block}}
";
    fs::write(folder.path().join("drive.yml"), file).unwrap();
    let output = nervure(folder.path())
        .args(["graph", "drive.yml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}

#[test]
fn a_file_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let output = nervure(folder.path())
        .args(["graph", "drive.yml"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert_snapshot!(String::from_utf8(output.stderr).unwrap());
}
