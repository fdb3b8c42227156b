//! A fake host, so that results do not depend on the real one.

use std::path::Path;

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
];

impl Surroundings for FakeHost {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/home/robot".to_owned())
    }

    fn entry(&self, path: &Path) -> Entry {
        let path: std::path::PathBuf = path
            .components()
            .filter(|part| part.as_os_str() != ".")
            .collect();
        if path == Path::new(DIRECTORY) || path == Path::new("/robot/models") {
            return Entry::Folder;
        }
        let file = FILES.iter().find(|(name, _)| Path::new(name) == path);
        file.map_or(Entry::Missing, |&(_, executable)| Entry::File {
            executable,
        })
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        let inside = FILES
            .iter()
            .filter_map(|(name, _)| Path::new(name).strip_prefix(folder).ok());
        inside.map(|name| name.display().to_string()).collect()
    }

    fn has_command(&self, name: &str) -> bool {
        matches!(name, "python3" | "sh" | "opencv-video-capture")
    }
}

/// Parses `bytes` as a dataflow file of the fake host.
pub fn parse(name: &str, bytes: &[u8]) -> Report {
    nervure_dataflow::parse(name, bytes, Path::new(DIRECTORY), &FakeHost)
}
