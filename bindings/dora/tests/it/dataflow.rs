//! Dataflows of the tests, and the programs that they are run with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The folder of built programs.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    // Nearly all of it exists if `cargo test` of the workspace runs the tests. With fewer packages features would differ,
    // and their dependencies be built again.
    let mut cargo = Command::new(env!("CARGO"));
    let built = cargo.args([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--all-features",
    ]);
    let built = built.args(["--lib", "--bins", "--examples"]);
    assert!(built.status().unwrap().success(), "{built:?}");
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
});

/// A dataflow file under construction, in a folder of its own.
pub struct Dataflow {
    folder: TempDir,
    nodes: Vec<Value>,
}

impl Dataflow {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            nodes: Vec::new(),
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

    /// Adds a node of the tests' own program in Rust, which writes to a file of the node's id.
    pub fn rust(self, id: &str, role: &str, inputs: Value, outputs: &[&str]) -> Self {
        let program = BUILT.join("examples/conformance");
        self.native(&program, id, role, inputs, outputs)
    }

    /// Adds a node of the tests' own program in C, which writes to a file of the node's id.
    pub fn c(self, id: &str, role: &str, inputs: Value, outputs: &[&str]) -> Self {
        let program = self.folder().join("node");
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
        let arguments = json!([role, self.folder().join(id)]);
        self.node(json!({
            "id": id, "path": program, "args": arguments, "inputs": inputs, "outputs": outputs,
        }))
    }

    /// Runs the dataflow to its end.
    pub fn run(&self) -> Output {
        let file = self.folder().join("dataflow.yml");
        fs::write(&file, json!({"nodes": self.nodes}).to_string()).unwrap();
        Command::new(BUILT.join("nervure"))
            .arg("run")
            .arg(&file)
            .current_dir(self.folder())
            .output()
            .unwrap()
    }

    /// Runs the dataflow, whose nodes all succeed. Returns what it printed.
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
        &["-std=c11", &source, &include("dora-c")],
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
                &include("dora-operator-c"),
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
