//! `nervure doctor FILE`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use insta::assert_snapshot;
use serde_json::Value;

use crate::dataflow::nervure;

const PACKAGE: &str = "\
class Node:
    def next(self, timeout=None): pass
    def send_output(self, output_id, data, metadata=None): pass
";

const PLOTTER: &str = "\
import json
import cv2
import helpers
from dora import Node

def main(node: Node):
    while node.next(timeout=1):
        node.read_tensor_pool(None)
        node.next(deadline=1)
    try:
        import seaborn
    except ImportError:
        seaborn = None

main(Node())
";

const DATAFLOW: &str = "\
nodes:
  - id: camera
    path: camera.py
    inputs: {tick: dora/timer/millis/50}
    outputs: [image]
  - id: bridge
    path: bridge.py
    inputs: {image: camera/image}
  - id: detector
    path: bin/detector
    build: make detector
    inputs: {image: camera/image}
  - id: plotter
    path: plotter.py
    build: |
      pip install opencv-python
    inputs: {image: camera/image}
";

/// Runs `doctor` on `drive.yml`, with a Python that has no modules of its own but `pyarrow` and the
/// given `dora`.
fn doctor(folder: &Path, files: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let modules = [("modules/pyarrow.py", ""), ("modules/dora.py", PACKAGE)];
    let python = "#!/bin/sh\nexec python3 -I -S -c \"import sys; sys.argv[0] = '-c'; \
                  sys.path.insert(0, '$MODULES'); exec(sys.argv.pop(2))\" \"$@\"\n";
    let python = python.replace("$MODULES", &folder.join("modules").display().to_string());
    let files = files.iter().chain(&modules);
    for (name, text) in files.chain(&[("venv/bin/python", python.as_str())]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let python = folder.join("venv/bin/python");
    fs::set_permissions(python, fs::Permissions::from_mode(0o755)).unwrap();
    let output = nervure(folder)
        .args(["doctor", "drive.yml"])
        .args(arguments)
        .env("VIRTUAL_ENV", folder.join("venv"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.replace(&folder.display().to_string(), "FOLDER");
    (output.status.code().unwrap(), text)
}

#[test]
fn everything_that_a_project_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("drive.yml", DATAFLOW),
        (
            "camera.py",
            "from dora import Node\nfor event in Node():\n    pass\n",
        ),
        ("bridge.py", "from dora import Ros2Context\n"),
        ("plotter.py", PLOTTER),
        ("helpers.py", "import scipy.signal\nimport os.path\n"),
    ];
    let (code, text) = doctor(folder.path(), &files, &[]);
    assert_eq!(code, 3);
    assert_snapshot!(text);
}

#[test]
fn a_project_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dataflow = "nodes:\n  - {id: camera, path: camera.py, outputs: [image]}\n";
    let camera = "from dora import Node\nNode().send_output(\"image\", b\"\")\n";
    let files = [("drive.yml", dataflow), ("camera.py", camera)];
    let (code, text) = doctor(folder.path(), &files, &[]);
    assert_eq!(code, 0);
    assert_snapshot!(text);
}

#[test]
fn a_file_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let dataflow = "nodes:\n  - {id: camera, path: camera.py, output: [image]}\n";
    let files = [("drive.yml", dataflow), ("camera.py", "def\n")];
    let (code, text) = doctor(folder.path(), &files, &[]);
    assert_eq!(code, 2);
    assert_snapshot!(text);
}

#[test]
fn findings_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let dataflow = "nodes:\n  - {id: camera, path: camera.py}\n";
    let files = [
        ("drive.yml", dataflow),
        ("camera.py", "import os\nimport zmq\n"),
    ];
    let (code, text) = doctor(folder.path(), &files, &["--json"]);
    assert_eq!(code, 3);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["can_run"], false);
    let finding = &answer["findings"].as_array().unwrap().last().unwrap();
    assert_eq!(finding["code"], "missing-module");
    assert_eq!(
        (finding["file"].as_str(), finding["line"].as_u64()),
        (Some("camera.py"), Some(2))
    );
    assert_eq!(
        finding["hint"],
        "`FOLDER/venv/bin/python -m pip install pyzmq`"
    );
}
