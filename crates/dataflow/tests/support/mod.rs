//! A fake host, so that results do not depend on the real one.

use std::path::{Path, PathBuf};

use nervure_dataflow::{Entry, Report, Surroundings};

/// The folder of the dataflow files.
pub const DIRECTORY: &str = "/robot";

/// A fake host with a few programs in `/robot`.
pub struct FakeHost;

const FILES: &[(&str, bool)] = &[
    ("/robot/camera.py", false),
    ("/robot/detector.py", false),
    ("/robot/planner.py", false),
    ("/robot/control", true),
    ("/robot/notes.txt", false),
    ("/robot/libs/libplanner.so", false),
    ("/robot/msgs/my/Boxes.msg", false),
    ("/robot/msgs/my/Goal.msg", false),
];

const FOLDERS: &[&str] = &[DIRECTORY, "/robot/models", "/robot/msgs", "/robot/msgs/my"];

const MODULES: &[(&str, &str)] = &[
    ("/robot/modules/transform.yml", TRANSFORM),
    ("/robot/modules/../modules/inner.yml", INNER),
    ("/robot/modules/endless.yml", ENDLESS),
    ("/robot/modules/wrong.yml", WRONG),
    ("/robot/msgs/my/Boxes.msg", "float64[] x\n"),
    ("/robot/msgs/my/Goal.msg", "flaot64 x\n"),
    ("/robot/modules/../msgs/my/Boxes.msg", "float64[] x\n"),
    ("/robot/modules/../msgs/my/Goal.msg", "flaot64 x\n"),
    ("/robot/modules/declared.yml", DECLARED),
];

const TRANSFORM: &str = "
types: [../msgs]
module: {name: transform, inputs: [raw], inputs_optional: [extra], outputs: [result]}
build: pip install transform
nodes:
  - id: double
    path: ../camera.py
    args: --gain ${_param.gain}
    inputs: {data: _mod/raw, extra: _mod/extra}
    outputs: [doubled]
  - id: filter
    module: ../modules/inner.yml
    inputs: {data: double/doubled}
  - {id: last, path: sh, inputs: {data: filter/filtered}, outputs: [result]}
";

const INNER: &str = "
module: {name: inner, inputs: [data], outputs: [filtered]}
nodes:
  - id: op
    operator: {python: ../camera.py, inputs: {data: _mod/data}, outputs: [filtered]}
";

const ENDLESS: &str = "
module: {name: endless}
nodes: [{id: again, module: endless.yml}]
";

const WRONG: &str = "
module: {name: wrong, outputs: [a]}
nodes: [{id: x, pth: sh}]
";

const DECLARED: &str = "
module: {name: declared, outputs: [x]}
args: {size: {value: 3, max: 10}, label: text}
nodes: [{id: x, path: sh, outputs: [x], args: ['${args.label}'], params: {size: '${args.size}'}}]
";

impl Surroundings for FakeHost {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/home/robot".to_owned())
    }

    fn argument(&self, name: &str) -> Option<String> {
        (name == "given").then(|| "7".to_owned())
    }

    fn entry(&self, path: &Path) -> Entry {
        let path = normal(path);
        if FOLDERS.contains(&path.to_str().unwrap_or_default()) {
            return Entry::Folder;
        }
        let file = FILES.iter().find(|(name, _)| Path::new(name) == path);
        file.map_or(Entry::Missing, |&(_, executable)| Entry::File {
            executable,
        })
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        let folder = normal(folder);
        let inside = FILES
            .iter()
            .map(|(name, _)| *name)
            .chain(FOLDERS.iter().copied())
            .filter(|name| Path::new(name).parent() == Some(&folder));
        let name = |path: &str| Path::new(path).file_name()?.to_str().map(str::to_owned);
        inside.filter_map(name).collect()
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let module = MODULES.iter().find(|(name, _)| Path::new(name) == path);
        let module = module.ok_or("there is no such file")?;
        Ok(module.1.as_bytes().to_vec())
    }

    fn has_command(&self, name: &str) -> bool {
        matches!(name, "python3" | "sh" | "opencv-video-capture")
    }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part.as_os_str().to_str() {
            Some(".") => {}
            Some("..") => drop(path.pop()),
            _ => path.push(part),
        }
        path
    })
}

/// Parses `bytes` as a dataflow file of the fake host.
pub fn parse(name: &str, bytes: &[u8]) -> Report {
    nervure_dataflow::parse(name, bytes, Path::new(DIRECTORY), &FakeHost)
}
