//! Reads the program of a node: `path` and `args`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nervure_protocol::graph::Program;
use nervure_protocol::nearest;

use super::map::Keys;
use super::reader::{Reader, wrong_type};
use super::variables::Variables;
use crate::diagnostic::{Code, Finding, Severity};
use crate::keys::Shape;
use crate::parsed::LocatedProgram;
use crate::quote::{is_invisible, quoted};
use crate::surroundings::{Entry, Surroundings};
use crate::tree::{Kind, Text, Value};

/// Longest path that Linux takes (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4_096;

/// Keys that only have an effect on a process that the keeper starts.
const PROCESS_KEYS: [&str; 13] = [
    "process",
    "args",
    "env",
    "cpu_affinity",
    "scheduling",
    "ready",
    "startup_timeout",
    "health_check_timeout",
    "restart_policy",
    "restart_delay",
    "max_restart_delay",
    "max_restarts",
    "restart_window",
];

/// Looks for programs on the host.
#[derive(Clone)]
pub(super) struct ProgramLocator<'h> {
    /// The folder of the file or of the node, to which paths are relative.
    pub directory: Cow<'h, Path>,
    pub surroundings: &'h dyn Surroundings,
    /// The id of the first node with a `build`.
    pub builder: Option<String>,
}

pub(super) fn read_program(
    reader: &mut Reader<'_>,
    locator: &ProgramLocator<'_>,
    keys: &Keys<'_>,
) -> Option<LocatedProgram> {
    let path = reader.text(keys.value("path")?, Shape::Path)?;
    if path.text == "dynamic" {
        report_process_keys(reader, keys);
        return Some(LocatedProgram::built(Program::Dynamic));
    }
    if let Some(finding) = check_path(&path) {
        reader.report(finding);
        return None;
    }
    if is_function(&path.text) {
        return Some(LocatedProgram::built(Program::Function(path.text)));
    }
    let has_build = ["build", "git"]
        .iter()
        .any(|key| keys.value_if_any(key).is_some());
    locator.locate(reader, &path, has_build)
}

/// Warns of keys for a process that the keeper does not start.
fn report_process_keys(reader: &mut Reader<'_>, keys: &Keys<'_>) {
    for name in PROCESS_KEYS {
        let Some(entry) = keys
            .entry(name)
            .filter(|_| keys.value_if_any(name).is_some())
        else {
            continue;
        };
        let message = format!("`{name}` has no effect: the dataflow does not start the node");
        let hint =
            "remove it: a node with `path: dynamic` is started by hand, and nothing waits for it";
        reader.report(Finding::warning(Code::UselessKey, entry.key.span, message).hint(hint));
    }
}

/// Arguments: text is split as a shell splits it, a list is taken as it is. Variables are filled in
/// afterwards, so that their values are never split.
pub(super) fn read_arguments(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &Value,
) -> Vec<String> {
    let arguments: Vec<String> = match &value.kind {
        Kind::Text(text) => match shlex::split(text) {
            Some(words) => words
                .iter()
                .filter_map(|word| variables.fill_text(reader, word, value.span))
                .collect(),
            None => {
                let message = "a quote in the arguments is never closed";
                let hint =
                    "close the quote, or write the arguments as a list: `[--name, \"it's\"]`";
                let finding = Finding::error(Code::InvalidValue, value.span, message)
                    .expected(Shape::Arguments.describe())
                    .hint(hint);
                reader.report(finding);
                Vec::new()
            }
        },
        Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Boolean(_, text) => {
            vec![text.clone()]
        }
        Kind::List(items) => items
            .iter()
            .filter_map(|item| read_argument(reader, variables, item))
            .collect(),
        Kind::Map(_) | Kind::Null => {
            reader.report(wrong_type(value, Shape::Arguments.describe()));
            Vec::new()
        }
    };
    if arguments.iter().any(|argument| argument.contains('\0')) {
        let message = "an argument contains a zero byte";
        let finding = Finding::error(Code::InvalidValue, value.span, message);
        reader.report(finding.expected("text without zero bytes"));
    }
    arguments
}

fn read_argument(
    reader: &mut Reader<'_>,
    variables: &Variables<'_>,
    value: &Value,
) -> Option<String> {
    match &value.kind {
        Kind::Text(text) => variables.fill_text(reader, text, value.span),
        Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Boolean(_, text) => {
            Some(text.clone())
        }
        Kind::Null | Kind::List(_) | Kind::Map(_) => {
            reader.report(wrong_type(value, "text or a number"));
            None
        }
    }
}

/// The commands that build a program, one a line.
pub(super) fn read_build(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    if let Kind::List(_) = value.kind {
        let hint = "for several commands write `build: |`, and below it one command a line";
        reader.report(wrong_type(value, Shape::Words.describe()).hint(hint));
        return None;
    }
    reader.text(value, Shape::Words).map(|text| text.text)
}

/// Why `path` cannot be the path of a program. Some words have a special meaning in dora.
fn check_path(path: &Text) -> Option<Finding> {
    let text = &path.text;
    if let Some(finding) = check_characters(path) {
        Some(finding)
    } else if text == "shell" {
        let message = "`path: shell` is not supported";
        let finding = Finding::error(Code::UnsupportedKey, path.span, message);
        Some(finding.hint("write `path: sh` and `args: [-c, \"..\"]`"))
    } else {
        None
    }
}

/// Why `path` cannot be a path on this host.
fn check_characters(path: &Text) -> Option<Finding> {
    let text = &path.text;
    let refuse = |message: String, hint: &str| {
        Some(Finding::error(Code::InvalidPath, path.span, message).hint(hint))
    };
    if let Some(character) = text.chars().find(|&character| is_invisible(character)) {
        let number = u32::from(character);
        refuse(
            format!("the path contains the invisible character U+{number:04X}"),
            "delete the character; it may have been copied along",
        )
    } else if text.len() > MAX_PATH_BYTES {
        refuse(
            format!("the path is {} bytes long", text.len()),
            "Linux takes paths of up to 4096 bytes",
        )
    } else if text.contains("://") {
        refuse(
            "programs are not downloaded".to_owned(),
            "download it in `build`, and name the file in `path`",
        )
    } else {
        None
    }
}

impl ProgramLocator<'_> {
    /// The program at `path`. Without it, a node with a `build` gets a warning instead of an error.
    fn locate(
        &self,
        reader: &mut Reader<'_>,
        path: &Text,
        has_build: bool,
    ) -> Option<LocatedProgram> {
        // `./camera` becomes `camera`. `..` stays, because a link may lead elsewhere.
        let file: PathBuf = self.directory.join(&path.text).components().collect();
        let is_python = is_python_script(path);
        let is_component = is_shared_library(path);
        let may_be_command = !path.text.contains('/') && !is_python && !is_component;
        let command = || Program::Command(path.text.clone());
        let program = if is_python {
            Program::Python(file.clone())
        } else if is_component {
            Program::Component(file.clone())
        } else {
            Program::Executable(file.clone())
        };
        match self.surroundings.entry(&file) {
            Entry::File { executable } if executable || is_python || is_component => {
                return Some(LocatedProgram::built(program));
            }
            _ if may_be_command && self.surroundings.has_command(&path.text) => {
                return Some(LocatedProgram::built(command()));
            }
            // A folder may hold the sources of the command of the same name that `build` installs.
            entry
                if has_build
                    && (entry == Entry::Missing || entry == Entry::Folder && may_be_command) =>
            {
                reader.report(not_built(path));
                return Some(LocatedProgram {
                    // A build installs a name without a folder on the PATH, as pip does.
                    program: if may_be_command { command() } else { program },
                    is_built: false,
                });
            }
            Entry::File { .. } => reader.report(not_executable(path)),
            Entry::Folder => reader.report(is_a_folder(path)),
            Entry::Missing if self.report_missing(reader, path, &file, may_be_command) => {
                return Some(LocatedProgram {
                    program: if may_be_command { command() } else { program },
                    is_built: false,
                });
            }
            Entry::Missing => {}
        }
        None
    }

    /// The script of an operator, and whether it exists yet.
    pub fn locate_script(
        &self,
        reader: &mut Reader<'_>,
        path: &Text,
        has_build: bool,
    ) -> Option<(PathBuf, bool)> {
        self.locate_code(reader, path, &path.text, has_build)
    }

    /// The shared library of an operator, and whether it exists yet. As in dora, the name of the file
    /// is made from that in `path`: `build/detect` is `build/libdetect.so`.
    pub fn locate_library(
        &self,
        reader: &mut Reader<'_>,
        path: &Text,
        has_build: bool,
    ) -> Option<(PathBuf, bool)> {
        self.locate_code(reader, path, &library_file(&path.text), has_build)
    }

    /// The file `name` of an operator, which `path` stands for.
    fn locate_code(
        &self,
        reader: &mut Reader<'_>,
        path: &Text,
        name: &str,
        has_build: bool,
    ) -> Option<(PathBuf, bool)> {
        if let Some(finding) = check_characters(path) {
            reader.report(finding);
            return None;
        }
        let file: PathBuf = self.directory.join(name).components().collect();
        let named = Text {
            span: path.span,
            text: name.to_owned(),
        };
        match self.surroundings.entry(&file) {
            Entry::File { .. } => return Some((file, true)),
            Entry::Missing if has_build => {
                reader.report(not_built(&named));
                return Some((file, false));
            }
            Entry::Missing if self.report_missing(reader, &named, &file, false) => {
                return Some((file, false));
            }
            Entry::Missing => {}
            Entry::Folder => reader.report(is_a_folder(path)),
        }
        None
    }

    /// Reports a program that does not exist: an error if there is one with a similar name. If not,
    /// a warning, because a file can be checked where its programs are not installed; true.
    fn report_missing(
        &self,
        reader: &mut Reader<'_>,
        path: &Text,
        file: &Path,
        may_be_command: bool,
    ) -> bool {
        // A finding that is only counted needs no search.
        if reader.is_full() {
            reader.report(Finding::warning(Code::MissingFile, path.span, ""));
            return true;
        }
        let mut finding = self.missing_program(path, file, may_be_command);
        let may_be_elsewhere = finding.suggestion.is_none();
        if may_be_elsewhere {
            finding.severity = Severity::Warning;
        }
        reader.report(finding);
        may_be_elsewhere
    }

    fn missing_program(&self, path: &Text, file: &Path, may_be_command: bool) -> Finding {
        let shown = quoted(&path.text);
        let message = if may_be_command {
            format!(
                "{shown} is neither a file in the folder of this dataflow nor a command on the PATH"
            )
        } else {
            format!("the file {shown} does not exist")
        };
        let finding = Finding::error(Code::MissingFile, path.span, message);
        let (Some(folder), Some(name)) = (
            file.parent(),
            file.file_name().and_then(|name| name.to_str()),
        ) else {
            return finding;
        };
        // One build may make the programs of several nodes. For scripts and commands that is
        // unlikely.
        let builder = self
            .builder
            .as_ref()
            .filter(|_| !is_python_script(path) && !may_be_command);
        let may_be_built = builder.map(|node| {
            let node = quoted(node);
            format!("`nervure build` may make it: node {node} has a `build`")
        });
        if !matches!(self.surroundings.entry(folder), Entry::Folder) {
            return finding.hint(may_be_built.unwrap_or_else(|| {
                let folder = quoted(&folder.display().to_string());
                format!("the folder {folder} does not exist")
            }));
        }
        let names = self.surroundings.names_in(folder);
        let near = nearest(name, names.iter().map(String::as_str));
        // The suggestion replaces the whole path, so it needs the folder as the file writes it.
        let near = near.and_then(|near| Some(format!("{}{near}", path.text.strip_suffix(name)?)));
        finding.nearest(near.as_deref(), || {
            Some(may_be_built.unwrap_or_else(|| {
                let directory = quoted(&self.directory.display().to_string());
                format!("paths are relative to {directory}")
            }))
        })
    }
}

/// The path of a shared library: with `lib` and `.so` added to the name of its file, unless it has
/// an extension.
fn library_file(path: &str) -> String {
    let (folder, name) = path
        .rsplit_once('/')
        .map_or(("", path), |(folder, name)| (folder, name));
    if Path::new(name).extension().is_some() {
        return path.to_owned();
    }
    let slash = if path.contains('/') { "/" } else { "" };
    let prefix = if name.starts_with("lib") { "" } else { "lib" };
    format!("{folder}{slash}{prefix}{name}.so")
}

fn is_a_folder(path: &Text) -> Finding {
    let message = format!("{} is a folder", quoted(&path.text));
    Finding::error(Code::MissingFile, path.span, message)
        .expected(Shape::Path.describe())
        .hint("name the program inside of it")
}

fn is_python_script(path: &Text) -> bool {
    Path::new(&path.text)
        .extension()
        .is_some_and(|extension| extension == "py")
}

/// True for `libcamera.so`, and for `libcamera.so.2`.
fn is_shared_library(path: &Text) -> bool {
    let name = Path::new(&path.text).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.ends_with(".so") || name.contains(".so."))
}

fn not_built(path: &Text) -> Finding {
    let message = format!("the program {} is not there yet", quoted(&path.text));
    Finding::warning(Code::NotBuilt, path.span, message).hint("`nervure build` builds it")
}

fn not_executable(path: &Text) -> Finding {
    let message = format!("the file {} cannot be executed", quoted(&path.text));
    let file = shlex::try_quote(&path.text).unwrap_or_default();
    Finding::error(Code::NotExecutable, path.span, message).hint(format!(
        "run `chmod +x {file}`; a Python script needs a name that ends in `.py`"
    ))
}

/// Whether `text` names a function of a Python module: `perception:detect`.
fn is_function(text: &str) -> bool {
    let is_identifier = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|character| {
                character.is_ascii_alphanumeric() || matches!(character, '_' | '.')
            })
    };
    text.split_once(':')
        .is_some_and(|(module, function)| is_identifier(module) && is_identifier(function))
}

#[cfg(test)]
mod tests {
    use super::library_file;

    #[test]
    fn the_name_of_a_library_is_completed_as_dora_does_it() {
        for (path, file) in [
            ("build/operator", "build/liboperator.so"),
            ("operator", "liboperator.so"),
            ("../a.b/operator", "../a.b/liboperator.so"),
            ("build/libop", "build/libop.so"),
            ("build/libop.so", "build/libop.so"),
            ("build/libop.so.1", "build/libop.so.1"),
        ] {
            assert_eq!(library_file(path), file, "{path}");
        }
    }
}
