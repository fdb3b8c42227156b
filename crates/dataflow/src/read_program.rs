//! Reads what a node runs: `path` and `args`.

use std::path::{Path, PathBuf};

use nervure_protocol::nearest;

use crate::diagnostic::{Code, Finding};
use crate::graph::Program;
use crate::keys::Shape;
use crate::quote::{is_invisible, quoted};
use crate::reader::{Keys, Reader};
use crate::surroundings::{Entry, Surroundings};
use crate::tree::{Kind, Text, Value};

/// Longest path that Linux takes.
const MAX_PATH_BYTES: usize = 4_096;

/// A program, and whether it is there yet.
#[derive(Debug)]
pub(crate) struct Located {
    pub program: Program,
    pub is_built: bool,
}

impl From<Program> for Located {
    fn from(program: Program) -> Self {
        Self {
            program,
            is_built: true,
        }
    }
}

impl Reader<'_> {
    pub fn program(&mut self, keys: &Keys<'_>) -> Option<Located> {
        let entry = keys.get("path")?;
        let path = self.text(&entry.value, Shape::Path)?;
        if path.text == "dynamic" {
            self.keys_without_a_process(keys);
            return Some(Program::Dynamic.into());
        }
        self.check_path(&path)?;
        let has_build = keys.get_some("build").is_some();
        self.locate_program(&path, has_build)
    }

    /// Warns of what is for processes that the keeper starts.
    fn keys_without_a_process(&mut self, keys: &Keys<'_>) {
        const USELESS: [&str; 12] = [
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
        for name in USELESS {
            if let Some(entry) = keys.get_some(name) {
                let message =
                    format!("`{name}` has no effect: the dataflow does not start the node");
                let finding = Finding::warning(Code::UselessKey, entry.key.span, message).hint(
                    "remove it: a node with `path: dynamic` is started by hand, and nothing waits for it",
                );
                self.findings.push(finding);
            }
        }
    }

    /// Arguments: text is split as a shell splits it, a list is taken as it is. Then variables are filled in, so that
    /// the value of one is never split.
    pub fn arguments(&mut self, value: &Value) -> Vec<String> {
        let arguments: Vec<String> = match &value.kind {
            Kind::Text(text) => match shlex::split(text) {
                Some(words) => words
                    .iter()
                    .filter_map(|word| self.expanded(word, value.span))
                    .collect(),
                None => {
                    let message = "a quote in the arguments is never closed";
                    let finding = Finding::error(Code::InvalidValue, value.span, message)
                        .expected(Shape::Arguments.describe())
                        .hint("close the quote, or write the arguments as a list: `[--name, \"it's\"]`");
                    self.findings.push(finding);
                    Vec::new()
                }
            },
            Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Boolean(_, text) => {
                vec![text.clone()]
            }
            Kind::List(items) => items
                .iter()
                .filter_map(|item| self.argument(item))
                .collect(),
            Kind::Map(_) | Kind::Null => {
                let finding = self.wrong_type(value, &Shape::Arguments.describe());
                self.findings.push(finding);
                Vec::new()
            }
        };
        if arguments.iter().any(|argument| argument.contains('\0')) {
            let finding = Finding::error(
                Code::InvalidValue,
                value.span,
                "an argument contains a zero byte",
            )
            .expected("text without zero bytes");
            self.findings.push(finding);
        }
        arguments
    }

    fn argument(&mut self, value: &Value) -> Option<String> {
        match &value.kind {
            Kind::Text(text) => self.expanded(text, value.span),
            Kind::Integer(_, text) | Kind::Float(_, text) | Kind::Boolean(_, text) => {
                Some(text.clone())
            }
            Kind::Null | Kind::List(_) | Kind::Map(_) => {
                let finding = self.wrong_type(value, "text or a number");
                self.findings.push(finding);
                None
            }
        }
    }

    /// Refuses what no honest path contains, and dora's special ones.
    fn check_path(&mut self, path: &Text) -> Option<()> {
        let text = &path.text;
        let refuse = |code, message: String, hint: &str| {
            Some(Finding::error(code, path.span, message).hint(hint))
        };
        let finding =
            if let Some(character) = text.chars().find(|&character| is_invisible(character)) {
                let message = format!(
                    "the path contains the invisible character U+{:04X}",
                    u32::from(character)
                );
                refuse(
                    Code::InvalidPath,
                    message,
                    "delete the character; it may have been copied along",
                )
            } else if text.len() > MAX_PATH_BYTES {
                let message = format!("the path is {} bytes long", text.len());
                refuse(
                    Code::InvalidPath,
                    message,
                    "Linux takes paths of up to 4096 bytes",
                )
            } else if text.contains("://") {
                let message = "programs are not downloaded".to_owned();
                refuse(
                    Code::InvalidPath,
                    message,
                    "download it in `build`, and name the file in `path`",
                )
            } else if text == "shell" {
                let message = "`path: shell` is not supported".to_owned();
                refuse(
                    Code::UnsupportedKey,
                    message,
                    "write `path: sh` and `args: [-c, \"..\"]`",
                )
            } else if is_function(text) {
                let message = format!(
                    "{} names a function of a module, which is reserved for a later version",
                    quoted(text)
                );
                refuse(
                    Code::LaterKey,
                    message,
                    "until then, name a script that calls the function",
                )
            } else {
                None
            };
        match finding {
            None => Some(()),
            Some(finding) => {
                self.findings.push(finding);
                None
            }
        }
    }

    fn locate_program(&mut self, path: &Text, has_build: bool) -> Option<Located> {
        let relative = Path::new(&path.text);
        // `./camera` becomes `camera`; `..` stays, because a link may lead elsewhere.
        let file: PathBuf = self.directory.join(relative).components().collect();
        let is_python = relative
            .extension()
            .is_some_and(|extension| extension == "py");
        let may_be_command = !path.text.contains('/') && !is_python;
        let program = if is_python {
            Program::Python {
                script: file.clone(),
            }
        } else {
            Program::Executable { file: file.clone() }
        };
        let finding = match self.surroundings.entry(&file) {
            Entry::File { executable } if executable || is_python => return Some(program.into()),
            _ if may_be_command && self.surroundings.has_command(&path.text) => {
                return Some(
                    Program::Command {
                        name: path.text.clone(),
                    }
                    .into(),
                );
            }
            // A folder without a slash may be the sources of the command that `build` installs, as those of a package.
            entry
                if has_build
                    && (entry == Entry::Missing || entry == Entry::Folder && may_be_command) =>
            {
                self.findings.push(
                    Finding::warning(
                        Code::NotBuilt,
                        path.span,
                        format!("the program {} is not there yet", quoted(&path.text)),
                    )
                    .hint("`nervure build` builds it"),
                );
                // A build installs a name without a folder where the PATH finds it, as pip does.
                let command = may_be_command.then(|| Program::Command {
                    name: path.text.clone(),
                });
                return Some(Located {
                    program: command.unwrap_or(program),
                    is_built: false,
                });
            }
            Entry::File { .. } => Finding::error(
                Code::NotExecutable,
                path.span,
                format!("the file {} cannot be executed", quoted(&path.text)),
            )
            .hint(format!(
                "run `chmod +x {}`; a Python script needs a name that ends in `.py`",
                shlex::try_quote(&path.text).unwrap_or_default()
            )),
            Entry::Folder => Finding::error(
                Code::MissingFile,
                path.span,
                format!("{} is a folder", quoted(&path.text)),
            )
            .expected(Shape::Path.describe())
            .hint("name the program inside of it"),
            Entry::Missing => {
                let (surroundings, directory) = (self.surroundings, self.directory);
                // One build may make the programs of several nodes; of scripts and commands that is not likely.
                let builder = self
                    .builder
                    .as_deref()
                    .filter(|_| !is_python && !may_be_command);
                let message = if may_be_command {
                    format!(
                        "{} is neither a file in the folder of this dataflow nor a command on the PATH",
                        quoted(&path.text)
                    )
                } else {
                    format!("the file {} does not exist", quoted(&path.text))
                };
                let finding = Finding::error(Code::MissingFile, path.span, message);
                self.findings.push_error_with(|| {
                    with_nearest_file(finding, path, &file, surroundings, directory, builder)
                });
                return None;
            }
        };
        self.findings.push(finding);
        None
    }
}

/// Adds the file that `path` was probably meant to name, or else the node whose build may make it.
fn with_nearest_file(
    finding: Finding,
    path: &Text,
    file: &Path,
    surroundings: &dyn Surroundings,
    directory: &Path,
    builder: Option<&str>,
) -> Finding {
    let (Some(folder), Some(name)) = (
        file.parent(),
        file.file_name().and_then(|name| name.to_str()),
    ) else {
        return finding;
    };
    let may_be_built = builder.map(|node| {
        format!(
            "`nervure build` may make it: node {} has a `build`",
            quoted(node)
        )
    });
    if !matches!(surroundings.entry(folder), Entry::Folder) {
        if let Some(may_be_built) = may_be_built {
            return finding.hint(may_be_built);
        }
        return finding.hint(format!(
            "the folder {} does not exist",
            quoted(&folder.display().to_string())
        ));
    }
    let names = surroundings.names_in(folder);
    let near = nearest(name, names.iter().map(String::as_str));
    // The suggestion replaces the whole path, so that it needs the folder as the file writes it.
    let near = near.and_then(|near| Some(format!("{}{near}", path.text.strip_suffix(name)?)));
    finding.nearest(near.as_deref(), || {
        let relative = || {
            format!(
                "paths are relative to {}",
                quoted(&directory.display().to_string())
            )
        };
        Some(may_be_built.unwrap_or_else(relative))
    })
}

/// `perception:detect`
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
