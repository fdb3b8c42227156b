//! `nervure doctor FILE`: checks the requirements of a dataflow: programs, modules, dora's API.
//!
//! The file's own findings come first: keys that are ignored or not supported, programs that are not
//! built. Then the Python programs are read, each by the interpreter that would run it: for modules
//! that are not installed, and for parts of dora's API that Nervure's package `dora` does not have.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use nervure_dataflow::{Dataflow, Diagnostic, Node, load};
use nervure_inspect::format::count;
use nervure_launch::limits;
use nervure_protocol::graph::{OperatorSource, Program};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    failure::{Failure, IMPERFECT, INVALID},
    output,
};

/// Reads Python programs; run by the interpreter of the programs.
const READER: &str = include_str!("programs.py");

/// Packages whose names differ from those of their modules.
const PACKAGES: &[(&str, &str)] = &[
    ("cv2", "opencv-python"),
    ("google", "protobuf"),
    ("PIL", "pillow"),
    ("serial", "pyserial"),
    ("sklearn", "scikit-learn"),
    ("yaml", "pyyaml"),
    ("zmq", "pyzmq"),
];

/// What gives an environment Nervure's own package. It has no name on a package index.
const OWN_PACKAGE: &str = "install the wheel of Nervure into this environment (`pip install nervure-*.whl`, from `make wheel` \
                           or a release), or run the dataflow by the `nervure` of another one";

/// Prints the findings. Exit codes: 2 if the file is wrong, 3 if something is missing.
pub fn check(file: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let project = examine(file);
    let text = match as_json {
        true => {
            let findings = &project.findings;
            let stops = project.stops();
            json!({"file": project.file, "can_run": !stops, "findings": findings}).to_string()
                + "\n"
        }
        false => project.render(),
    };
    output::write(&text)?;
    Ok(match (project.is_invalid, project.stops()) {
        (true, _) => ExitCode::from(INVALID),
        (false, true) => ExitCode::from(IMPERFECT),
        (false, false) => ExitCode::SUCCESS,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// The dataflow cannot run, or a node fails at its start.
    Error,
    /// Something may not work, or is ignored.
    Warning,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    severity: Severity,
    code: String,
    file: String,
    line: usize,
    message: String,
    /// The likely fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// Findings in a dataflow file and its programs.
struct Project {
    file: String,
    findings: Vec<Finding>,
    is_invalid: bool,
    /// The subject of the first line of the report.
    checked: String,
}

fn examine(file: &Path) -> Project {
    let mut report = load(file);
    limits::check(&mut report);
    let is_invalid = report.has_errors();
    let dataflow = report.dataflow.clone();
    if !is_invalid {
        report.require_programs();
    }
    let mut findings: Vec<Finding> = report.diagnostics.iter().map(of_file).collect();
    let mut checked = "the Python programs are checked when the file has no error".to_owned();
    if let Some(dataflow) = dataflow {
        let programs = Programs::of(&dataflow);
        checked = programs.describe(&dataflow);
        findings.extend(programs.check(&dataflow, file));
    }
    Project {
        file: file.display().to_string(),
        findings,
        is_invalid,
        checked,
    }
}

impl Project {
    fn stops(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    fn count(&self, severity: Severity) -> usize {
        let matching = |finding: &&Finding| finding.severity == severity;
        self.findings.iter().filter(matching).count()
    }

    fn render(&self) -> String {
        let place = |finding: &Finding| format!("{}:{}", finding.file, finding.line);
        let width = self.findings.iter().map(|one| place(one).len()).max();
        let width = width.unwrap_or(0);
        let mut text = format!("{}: {}\n\n", self.file, self.checked);
        for finding in &self.findings {
            let state = match finding.severity {
                Severity::Error => "FAIL",
                Severity::Warning => "note",
            };
            let _ = writeln!(
                text,
                "{state}  {:width$}  {}",
                place(finding),
                finding.message
            );
            for line in finding.hint.iter().flat_map(|hint| hint.lines()) {
                let _ = writeln!(text, "      {:width$}  -> {line}", "");
            }
        }
        if !self.findings.is_empty() {
            text.push('\n');
        }
        let notes = match self.count(Severity::Warning) {
            0 => String::new(),
            notes => format!(", {}", count(notes, "note")),
        };
        let _ = match self.count(Severity::Error) {
            0 => writeln!(text, "Nothing stops this dataflow{notes}."),
            failures => writeln!(
                text,
                "This dataflow does not run: {}{notes}.",
                count(failures, "failure")
            ),
        };
        output::safe(&text).into_owned()
    }
}

fn of_file(diagnostic: &Diagnostic) -> Finding {
    let hint = match (&diagnostic.hint, &diagnostic.suggestion) {
        (Some(hint), _) => Some(hint.clone()),
        (None, Some(suggestion)) => Some(format!("did you mean `{suggestion}`?")),
        (None, None) => None,
    };
    Finding {
        severity: match diagnostic.is_error() {
            true => Severity::Error,
            false => Severity::Warning,
        },
        code: diagnostic.code.as_str().to_owned(),
        file: diagnostic.file.clone(),
        line: diagnostic.location.as_ref().map_or(1, |place| place.line),
        message: diagnostic.message.clone(),
        hint,
    }
}

/// The Python programs of a dataflow, by the interpreter that runs them.
struct Programs {
    /// Index of the node, and the script.
    by_python: BTreeMap<PathBuf, Vec<(usize, PathBuf)>>,
    /// Nodes without an interpreter, and why.
    without_python: Vec<(usize, String)>,
}

impl Programs {
    fn of(dataflow: &Dataflow) -> Self {
        let mut programs = Self {
            by_python: BTreeMap::new(),
            without_python: Vec::new(),
        };
        for (index, node) in dataflow.nodes.iter().enumerate() {
            for script in python_scripts(node) {
                match python_of(node, &script) {
                    Some(Ok(python)) => {
                        let scripts = programs.by_python.entry(python).or_default();
                        scripts.push((index, script));
                    }
                    Some(Err(why)) => programs.without_python.push((index, why)),
                    None => {}
                }
            }
        }
        programs
    }

    fn describe(&self, dataflow: &Dataflow) -> String {
        let nodes = count(dataflow.nodes.len(), "node");
        let programs: usize = self.by_python.values().map(Vec::len).sum();
        let pythons: Vec<String> = self
            .by_python
            .keys()
            .map(|python| python.display().to_string())
            .collect();
        match pythons.is_empty() {
            true => format!("{nodes}, no Python program"),
            false => format!(
                "{nodes}, {} read by {}",
                count(programs, "Python program"),
                pythons.join(", ")
            ),
        }
    }

    fn check(&self, dataflow: &Dataflow, file: &Path) -> Vec<Finding> {
        let at_node = |index: usize, code: &str, message: String, hint: String| Finding {
            severity: Severity::Error,
            code: code.to_owned(),
            file: file.display().to_string(),
            line: dataflow.nodes[index].line,
            message,
            hint: Some(hint),
        };
        let mut findings: Vec<Finding> = self
            .without_python
            .iter()
            .map(|(index, why)| {
                let message = format!("node `{}` has no Python: {why}", dataflow.nodes[*index].id);
                let hint = "install Python 3.10 or newer, or activate its environment";
                at_node(*index, "no-python", message, hint.to_owned())
            })
            .collect();
        for (python, scripts) in &self.by_python {
            match read(python, scripts, dataflow) {
                Ok(answer) => {
                    for (index, script) in scripts {
                        let found = answer.programs.get(&script.display().to_string());
                        let node = &dataflow.nodes[*index];
                        let found = found.into_iter().flatten();
                        findings.extend(found.filter_map(|one| {
                            let mut finding = one.judge(node, python, file)?;
                            finding.file = shown(&finding.file, &dataflow.directory, file);
                            Some(finding)
                        }));
                    }
                }
                Err(why) => {
                    let shown = python.display();
                    let message = format!("{shown} cannot read the programs: {why}");
                    let hint = "check that this interpreter runs: Python 3.10 or newer";
                    findings.push(at_node(scripts[0].0, "no-python", message, hint.to_owned()));
                }
            }
        }
        // Nodes may share a program.
        let mut unique: Vec<Finding> = Vec::new();
        for finding in findings {
            if !unique.contains(&finding) {
                unique.push(finding);
            }
        }
        unique
    }
}

/// The scripts of a node that Python may run. Those that do not exist are findings of the file.
fn python_scripts(node: &Node) -> Vec<PathBuf> {
    let scripts = match &node.program {
        Program::Python(script) | Program::Executable(script) => vec![script.clone()],
        Program::Command(name) => on_path(name, &node.settings.env).into_iter().collect(),
        Program::Operators(operators) => operators
            .iter()
            .filter_map(|operator| match &operator.source {
                OperatorSource::Python(script) => Some(script.clone()),
                OperatorSource::SharedLibrary(_) => None,
            })
            .collect(),
        Program::Component(_)
        | Program::Function(_)
        | Program::Dynamic
        | Program::Remote { .. }
        | Program::LogOutputs(_) => Vec::new(),
    };
    scripts
        .into_iter()
        .filter(|script| script.is_file())
        .collect()
}

/// The interpreter of a script of a node, or why there is none. `None` if Python does not run it.
fn python_of(node: &Node, script: &Path) -> Option<Result<PathBuf, String>> {
    match &node.program {
        Program::Executable(_) | Program::Command(_) => interpreter(script).map(Ok),
        program => {
            let words = nervure_keeper::program_words(program, &node.settings.env);
            Some(words.map(|words| PathBuf::from(&words[0])))
        }
    }
}

/// The Python in the first line of a script, as installers write it.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = File::open(script).ok()?;
    BufReader::new(file.take(4096))
        .read_until(b'\n', &mut line)
        .ok()?;
    let line = String::from_utf8(line).ok()?;
    let mut words = line.strip_prefix("#!")?.split_whitespace();
    let first = words.next()?;
    let program = match first.ends_with("/env") {
        true => on_path(words.next()?, &BTreeMap::new())?,
        false => first.into(),
    };
    let name = program.file_name()?.to_str()?;
    name.starts_with("python").then_some(program)
}

fn on_path(name: &str, own: &BTreeMap<String, String>) -> Option<PathBuf> {
    let path = own.get("PATH").map(Into::into);
    let path = path.or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Output of `programs.py`.
#[derive(Deserialize)]
struct Answer {
    programs: BTreeMap<String, Vec<Found>>,
}

#[derive(Deserialize)]
struct Found {
    kind: String,
    file: String,
    line: usize,
    name: String,
}

/// Lets an interpreter read scripts, with the environment of the first of their nodes.
fn read(
    python: &Path,
    scripts: &[(usize, PathBuf)],
    dataflow: &Dataflow,
) -> Result<Answer, String> {
    let own = &dataflow.nodes[scripts[0].0].settings.env;
    let path = nervure_keeper::python_path(own).map(|path| ("PYTHONPATH", path));
    let done = Command::new(python)
        .args(["-c", READER, "--follow"])
        .args(scripts.iter().map(|(_, script)| script))
        .current_dir(&dataflow.directory)
        .envs(own)
        .envs(path)
        .output()
        .map_err(|error| error.to_string())?;
    if !done.status.success() {
        let errors = String::from_utf8_lossy(&done.stderr);
        return Err(errors.lines().last().unwrap_or("no output").to_owned());
    }
    serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())
}

impl Found {
    fn judge(&self, node: &Node, python: &Path, dataflow: &Path) -> Option<Finding> {
        let name = &self.name;
        let (severity, code, message, hint) = match self.kind.as_str() {
            "missing_module" => (
                Severity::Error,
                "missing-module",
                format!(
                    "the module `{name}` is not installed in {}",
                    python.display()
                ),
                install(name, node, python, dataflow),
            ),
            "missing_import" if name == "dora" => (
                Severity::Error,
                "missing-module",
                format!(
                    "{} cannot import `dora`, which comes with Nervure",
                    python.display()
                ),
                OWN_PACKAGE.to_owned(),
            ),
            "missing_import" => (
                Severity::Error,
                "dora-api",
                format!("Nervure's package `dora` has no `{name}`"),
                replacement(name),
            ),
            "missing_name" => (
                Severity::Warning,
                "dora-api",
                format!("may not work: Nervure's package `dora` has no working `{name}`"),
                replacement(name),
            ),
            "unreadable" => (
                Severity::Error,
                "unreadable-program",
                format!("{} cannot read this program: {name}", python.display()),
                "correct it, or run it by a Python that knows its syntax".to_owned(),
            ),
            _ => return None,
        };
        Some(Finding {
            severity,
            code: code.to_owned(),
            file: self.file.clone(),
            line: self.line,
            message,
            hint: Some(hint),
        })
    }
}

/// A program's file as the user named the dataflow: relative to the same folder.
fn shown(program: &str, directory: &Path, dataflow: &Path) -> String {
    let folder = dataflow.parent().unwrap_or(Path::new(""));
    match Path::new(program).strip_prefix(directory) {
        Ok(inside) => folder.join(inside).display().to_string(),
        Err(_) => program.to_owned(),
    }
}

fn install(module: &str, node: &Node, python: &Path, dataflow: &Path) -> String {
    let top = module.split('.').next().unwrap_or(module);
    if top == "nervure" {
        return OWN_PACKAGE.to_owned();
    }
    let known = PACKAGES.iter().find(|(module, _)| *module == top);
    let package = known.map_or(top, |(_, package)| package);
    let pip = format!("{} -m pip install {package}", python.display());
    match &node.build {
        Some(_) => format!("`nervure build {}`, or `{pip}`", dataflow.display()),
        None => format!("`{pip}`"),
    }
}

fn replacement(name: &str) -> String {
    let text = if name.contains("Ros2") || name.contains("ros2") {
        "Nervure has no bridge to ROS 2: keep this node in a dataflow of dora"
    } else if name.ends_with("merge_external_events") {
        "it takes a subscription of dora's bridge to ROS 2, which Nervure does not have: receive the topic in a node of its own, with rclpy, and send what arrives to an output"
    } else if name.contains("cuda") || name.contains("tensor_pool") {
        "Nervure does not share memory of GPUs: send the array from the memory of the host"
    } else {
        "use Nervure's own API in this program (`from nervure import Node`)"
    };
    text.to_owned()
}
