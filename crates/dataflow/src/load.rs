//! Reads dataflow files of this host. The only file of this crate that does I/O.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding};
use crate::quote::quoted;
use crate::report::{Report, parse};
use crate::source::MAX_FILE_BYTES;
use crate::surroundings::{Entry, Surroundings};

/// Reads and checks the dataflow file at `path`.
///
/// Programs are looked up relative to the file's folder and on the PATH, environment variables in
/// the environment of this process.
#[must_use]
pub fn load(path: &Path) -> Report {
    load_for(path, &Host)
}

/// As [`load`], with other surroundings than [`Host`].
#[must_use]
pub fn load_for(path: &Path, surroundings: &dyn Surroundings) -> Report {
    let name = path.display().to_string();
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(error) => return Report::failure(&name, unreadable(path, &error)),
    };
    let directory = match absolute_parent(path) {
        Ok(directory) => directory,
        Err(error) => return Report::failure(&name, unreadable(path, &error)),
    };
    if let Some(what) = kind_of_program(path, &bytes) {
        return Report::failure(&name, no_dataflow(path, what));
    }
    parse(&name, &bytes, &directory, surroundings)
}

/// Describes a file that cannot be a dataflow file: a script or a program.
fn kind_of_program(path: &Path, bytes: &[u8]) -> Option<&'static str> {
    match path.extension().and_then(OsStr::to_str) {
        Some("py") => Some("Python script"),
        Some("rs" | "c" | "cc" | "cpp") => Some("source file"),
        _ if bytes.starts_with(b"#!") => Some("script"),
        _ if bytes.starts_with(b"\x7fELF") => Some("compiled program"),
        _ => None,
    }
}

fn no_dataflow(path: &Path, what: &str) -> Finding {
    let folder = path.parent().unwrap_or(Path::new(""));
    let shown = path.display().to_string();
    let node = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = format!("{} is a {what}, not a dataflow file", quoted(&shown));
    Finding::without_span(Code::UnreadableFile, text).nearest(
        dataflow_inside(folder).as_deref(),
        || {
            Some(format!(
                "a dataflow file names its programs: `nodes: [{{id: {node}, path: {shown}}}]`; \
                 `nervure new` writes one"
            ))
        },
    )
}

/// The host of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Surroundings for Host {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn argument(&self, _name: &str) -> Option<String> {
        None
    }

    fn entry(&self, path: &Path) -> Entry {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Entry::File {
                executable: is_executable(&metadata),
            },
            Ok(_) => Entry::Folder,
            Err(_) => Entry::Missing,
        }
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        // Enough for any folder of programs. The folder of a dataset is not read to its end for a
        // hint.
        const MAX_NAMES: usize = 1_000;
        let Ok(entries) = fs::read_dir(folder) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.take(MAX_NAMES).collect()
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        read(path).map_err(|error| error.to_string())
    }

    fn has_command(&self, name: &str) -> bool {
        let Some(path) = std::env::var_os("PATH") else {
            return false;
        };
        std::env::split_paths(&path).any(|folder| {
            matches!(
                self.entry(&folder.join(name)),
                Entry::File { executable: true }
            )
        })
    }
}

fn is_executable(metadata: &fs::Metadata) -> bool {
    metadata.permissions().mode() & 0o111 != 0
}

/// The content of the file, cut one byte past the limit. Files such as `/proc/kmsg`, whose content is
/// written on reads, have no length: their end may never come, so they count as empty.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let metadata = fs::metadata(path)?;
    if metadata.is_file() && metadata.len() == 0 {
        return Ok(bytes);
    }
    File::open(path)?
        .take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn absolute_parent(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    Ok(absolute.parent().unwrap_or(Path::new("/")).to_owned())
}

fn unreadable(path: &Path, error: &io::Error) -> Finding {
    let shown = quoted(&path.display().to_string());
    let finding = match error.kind() {
        io::ErrorKind::NotFound => {
            return Finding::without_span(
                Code::UnreadableFile,
                format!("there is no file {shown}"),
            )
            .nearest(nearby_file(path).as_deref(), || None);
        }
        io::ErrorKind::IsADirectory => {
            return Finding::without_span(Code::UnreadableFile, format!("{shown} is a folder"))
                .nearest(dataflow_inside(path).as_deref(), || {
                    Some("name the dataflow file in it".to_owned())
                });
        }
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    Finding::without_span(
        Code::UnreadableFile,
        format!("the file {shown} cannot be read: {finding}"),
    )
}

/// The YAML file in the same folder whose name is nearest.
fn nearby_file(path: &Path) -> Option<String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let names = yaml_files(folder);
    let near = nearest(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
    )?;
    Some(path.with_file_name(near).display().to_string())
}

fn dataflow_inside(folder: &Path) -> Option<String> {
    let is_here = folder.as_os_str().is_empty();
    let names = yaml_files(if is_here { Path::new(".") } else { folder });
    let name =
        names
            .iter()
            .find(|name| name.starts_with("dataflow."))
            .or(match names.as_slice() {
                [only] => Some(only),
                _ => None,
            })?;
    Some(folder.join(name).display().to_string())
}

fn yaml_files(folder: &Path) -> Vec<String> {
    let is_yaml = |name: &String| {
        let extension = Path::new(name).extension().and_then(OsStr::to_str);
        matches!(extension, Some("yml" | "yaml"))
    };
    Host.names_in(folder).into_iter().filter(is_yaml).collect()
}
