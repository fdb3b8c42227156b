//! Dataflows of the tests, and the programs that they are run with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The folder of built programs.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    // `make test-dora` has built them. Each test is a process there, and would wait for the others' builds.
    if std::env::var_os("NEXTEST").is_none() {
        build();
    }
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
});

/// Builds Nervure and dora's API into one folder. With fewer packages features would differ, and dependencies be
/// built again.
fn build() {
    for workspace in ["../../..", ".."] {
        let mut cargo = Command::new(env!("CARGO"));
        let options = [
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--all-features",
        ];
        let built = cargo
            .args(options)
            .args(["--lib", "--bins", "--examples"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(workspace));
        assert!(built.status().unwrap().success(), "{built:?}");
    }
}

/// What runs a dataflow.
#[derive(Clone, Debug)]
pub enum Host {
    Nervure,
    /// dora itself: its command, and a folder with the tests' programs `conformance` and `node`, built
    /// with dora's own crates and library.
    Dora {
        command: PathBuf,
        programs: PathBuf,
    },
}

impl Host {
    /// Nervure, and dora if its variables are set.
    pub fn all() -> Vec<Self> {
        let mut hosts = vec![Self::Nervure];
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        if let (Some(command), Some(programs)) = (path("NERVURE_DORA"), path("NERVURE_DORA_NODES"))
        {
            hosts.push(Self::Dora { command, programs });
        }
        hosts
    }

    pub fn is_nervure(&self) -> bool {
        matches!(self, Self::Nervure)
    }

    fn command(&self) -> PathBuf {
        match self {
            Self::Nervure => BUILT.join("nervure"),
            Self::Dora { command, .. } => command.clone(),
        }
    }
}

/// A dataflow file under construction, in a folder of its own.
pub struct Dataflow {
    host: Host,
    folder: TempDir,
    nodes: Vec<Value>,
    keys: Map<String, Value>,
}

impl Dataflow {
    pub fn new() -> Self {
        Self::under(Host::Nervure)
    }

    pub fn under(host: Host) -> Self {
        Self {
            host,
            folder: tempfile::tempdir().unwrap(),
            nodes: Vec::new(),
            keys: Map::new(),
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Adds a node as it stands in a file.
    pub fn node(mut self, node: Value) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds a key beside `nodes`.
    pub fn key(mut self, name: &str, value: Value) -> Self {
        self.keys.insert(name.to_owned(), value);
        self
    }

    /// Adds a node of the tests' own program in Rust, which writes to a file of the node's id.
    pub fn rust(self, id: &str, role: &str, inputs: Value, outputs: &[&str]) -> Self {
        let program = match &self.host {
            Host::Nervure => BUILT.join("examples/conformance"),
            Host::Dora { programs, .. } => programs.join("conformance"),
        };
        self.native(&program, id, role, inputs, outputs)
    }

    /// Adds a node of the tests' own program in C, which writes to a file of the node's id.
    pub fn c(self, id: &str, role: &str, inputs: Value, outputs: &[&str]) -> Self {
        let program = match &self.host {
            Host::Nervure => self.folder().join("node"),
            Host::Dora { programs, .. } => programs.join("node"),
        };
        if !program.exists() {
            compiled("node", self.folder());
        }
        self.native(&program, id, role, inputs, outputs)
    }

    /// Adds a node of the tests' own program in C++, which writes to a file of the node's id.
    pub fn cxx(self, id: &str, role: &str, inputs: Value, outputs: &[&str]) -> Self {
        let program = self.folder().join("cxx-node");
        if !program.exists() {
            let source = source("cxx/node.cc");
            compile_cxx("node", self.folder(), &[&source], &LIBRARIES, &program);
        }
        self.native(&program, id, role, inputs, outputs)
    }

    fn native(self, program: &Path, id: &str, role: &str, inputs: Value, outputs: &[&str]) -> Self {
        let arguments = format!("{role} {}", self.folder().join(id).display());
        let sender = self.folder().join("sender");
        self.node(json!({
            "id": id, "path": program, "args": arguments, "inputs": inputs, "outputs": outputs,
            "env": {"SENDER": sender},
        }))
    }

    fn command(&self) -> Command {
        let mut content = self.keys.clone();
        content.insert("nodes".to_owned(), self.nodes.clone().into());
        let file = self.folder().join("dataflow.yml");
        fs::write(&file, Value::from(content).to_string()).unwrap();
        let mut command = Command::new(self.host.command());
        command.arg("run").arg(&file).current_dir(self.folder());
        command
    }

    /// Runs the dataflow to its end.
    pub fn run(&self) -> Output {
        self.command().output().unwrap()
    }

    /// Runs the dataflow, and interrupts it when each of the nodes has written a line.
    pub fn interrupt_after(&self, nodes: &[&str]) -> Output {
        let mut command = self.command();
        let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let has_written = |node: &&str| {
            let text = fs::read_to_string(self.folder().join(node));
            text.is_ok_and(|text| text.contains('\n'))
        };
        while child.try_wait().unwrap().is_none() {
            if nodes.iter().all(has_written) {
                let pid = Pid::from_child(&child);
                kill_process(pid, Signal::INT).unwrap();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap()
    }

    /// Runs the dataflow, whose nodes all succeed. Returns its output.
    pub fn succeed(&self) -> String {
        let output = self.run();
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        text
    }

    /// The lines that a node has written to its file.
    pub fn seen(&self, node: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder().join(node)).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// Compiles and links a program of the tests in C, into a folder.
pub fn compiled(name: &str, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = source(&format!("c/{name}.c"));
    let libraries = ["-ldora_node_api_c", "-lm", "-ldl", "-lpthread"];
    compile(
        "cc",
        &["-std=c11", &source, &include("c")],
        &libraries,
        &program,
    );
    program
}

/// The languages of the tests' operators.
pub const OPERATORS: [&str; 3] = ["c", "c++", "rust"];

/// The shared library of the tests' operator in a language, as a dataflow file names it. It may be
/// compiled and linked in a folder.
pub fn compiled_operator(language: &str, folder: &Path) -> PathBuf {
    let library = folder.join("liboperator.so");
    match language {
        "c" => {
            let arguments = [
                "-std=c11",
                "-shared",
                "-fPIC",
                &source("c/operator.c"),
                &include("operator-c"),
            ];
            compile("cc", &arguments, &["-ldora_operator_api_c"], &library);
        }
        "c++" => {
            let include = format!("-I{}", source("cxx"));
            let arguments = ["-shared", "-fPIC", &source("cxx/operator.cc"), &include];
            let libraries = ["-ldora_operator_api_cxx"];
            compile_cxx("operator", folder, &arguments, &libraries, &library);
        }
        _ => return BUILT.join("examples/conformance_operator"),
    }
    folder.join("operator")
}

const LIBRARIES: [&str; 4] = ["-ldora_node_api_cxx", "-lm", "-ldl", "-lpthread"];

/// Compiles a program in C++ with what cxx generated for nodes or operators.
fn compile_cxx(kind: &str, folder: &Path, arguments: &[&str], libraries: &[&str], to: &Path) {
    let generated = BUILT.join(format!("../cxxbridge/dora-{kind}-api-cxx/src/lib.rs"));
    let copies = ["h", "cc"].map(|extension| {
        let copy = folder.join(format!("dora-{kind}-api.{extension}"));
        fs::copy(generated.with_extension(format!("rs.{extension}")), &copy).unwrap();
        copy
    });
    let include = format!("-I{}", folder.display());
    let mut all = vec!["-std=c++20", &include, copies[1].to_str().unwrap()];
    all.extend(arguments);
    compile("c++", &all, libraries, to);
}

fn compile(compiler: &str, arguments: &[&str], libraries: &[&str], to: &Path) {
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(arguments)
        .arg("-L")
        .arg(&*BUILT)
        .args(libraries)
        .arg("-o")
        .arg(to)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

fn source(name: &str) -> String {
    format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn include(package: &str) -> String {
    format!("-I{}/../{package}/include", env!("CARGO_MANIFEST_DIR"))
}

/// Both streams of a command.
pub fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams.map(|bytes| String::from_utf8_lossy(bytes)).concat()
}
