//! `nervure new`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use crate::{failure::Failure, output};

#[derive(Debug, Args)]
pub struct NewArguments {
    /// Name of the project's folder, or of the node.
    pub name: String,
    /// What to make.
    #[arg(long, default_value = "project")]
    pub kind: Kind,
    /// What it is written in.
    #[arg(long, visible_alias = "lang", default_value = "python")]
    pub language: Language,
    /// The clone of Nervure's repository that Rust projects build against; by default the one that this command was
    /// built from.
    #[arg(long, value_name = "FOLDER")]
    pub nervure: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A folder with a dataflow of three nodes, a test and a README.
    Project,
    /// A node for the project in the current folder.
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Python,
    Rust,
}

/// Makes a project or a node that runs as it is.
pub fn new(arguments: &NewArguments) -> Result<ExitCode, Failure> {
    check_name(&arguments.name)?;
    match arguments.kind {
        Kind::Project => new_project(arguments),
        Kind::Node => new_node(arguments),
    }
}

/// A file of a project: its path, and its text with `{{..}}` for what differs.
type Template = (&'static str, &'static str);

const PYTHON_PROJECT: &[Template] = &[
    ("dataflow.yml", include_str!("../templates/python/dataflow.yml")),
    ("camera.py", include_str!("../templates/python/camera.py")),
    ("brightness.py", include_str!("../templates/python/brightness.py")),
    ("show.py", include_str!("../templates/python/show.py")),
    ("tests/test_nodes.py", include_str!("../templates/python/tests/test_nodes.py")),
    ("README.md", include_str!("../templates/python/README.md")),
];
const RUST_PROJECT: &[Template] = &[
    ("dataflow.yml", include_str!("../templates/rust/dataflow.yml")),
    ("Cargo.toml", include_str!("../templates/rust/Cargo.toml.template")),
    ("src/lib.rs", include_str!("../templates/rust/src/lib.rs")),
    ("src/bin/camera.rs", include_str!("../templates/rust/src/bin/camera.rs")),
    ("src/bin/brightness.rs", include_str!("../templates/rust/src/bin/brightness.rs")),
    ("src/bin/show.rs", include_str!("../templates/rust/src/bin/show.rs")),
    ("tests/dataflow.rs", include_str!("../templates/rust/tests/dataflow.rs")),
    ("README.md", include_str!("../templates/rust/README.md")),
];
const PYTHON_NODE: &str = include_str!("../templates/node/node.py");
const RUST_NODE: &str = include_str!("../templates/node/node.rs");

fn new_project(arguments: &NewArguments) -> Result<ExitCode, Failure> {
    let NewArguments { name, language, .. } = arguments;
    let (templates, ignored, crate_folder) = match language {
        Language::Python => (PYTHON_PROJECT, "__pycache__/\n", PathBuf::new()),
        Language::Rust => (RUST_PROJECT, "/target\n", node_crate(arguments.nervure.as_deref())?),
    };
    let folder = Path::new(name);
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::invalid(format!("there is a `{name}` already"))
            .hint("choose another name, or remove it first"),
        _ => cannot_write(folder, &error),
    })?;
    for (path, text) in templates {
        let text = text
            .replace("{{name}}", name)
            .replace("{{crate}}", &name.replace('-', "_"))
            .replace("{{nervure_node}}", &crate_folder.display().to_string());
        write(&folder.join(path), &text)?;
    }
    write(&folder.join(".gitignore"), ignored)?;
    let (build, test) = match language {
        Language::Python => ("", "python -m pytest  # needs `pip install pytest`"),
        Language::Rust => ("  nervure build dataflow.yml\n", "cargo test"),
    };
    output::write(&format!(
        "made {name}: three nodes and the dataflow that connects them\n\n  cd {name}\n{build}  nervure run dataflow.yml\n  {test}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn new_node(arguments: &NewArguments) -> Result<ExitCode, Failure> {
    let name = &arguments.name;
    let (file, text, entry) = match arguments.language {
        Language::Python => (PathBuf::from(format!("{name}.py")), PYTHON_NODE, format!("path: {name}.py")),
        Language::Rust => {
            if !Path::new("Cargo.toml").is_file() {
                return Err(Failure::invalid("there is no Cargo.toml here")
                    .hint("change into a Rust project, such as `nervure new --language rust NAME` makes"));
            }
            let entry = format!("build: cargo build --release\n    path: target/release/{name}");
            (Path::new("src/bin").join(format!("{name}.rs")), RUST_NODE, entry)
        }
    };
    if file.exists() {
        return Err(Failure::invalid(format!("there is a `{}` already", file.display())));
    }
    write(&file, text)?;
    output::write(&format!(
        "made {}; to run it, add to the `nodes` of a dataflow file:\n\n  - id: {name}\n    {entry}\n    inputs: {{input: NODE/OUTPUT}}\n    outputs: [output]\n",
        file.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A name that is a folder's, a crate's and a node's at once.
fn check_name(name: &str) -> Result<(), Failure> {
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
        && name.len() <= 64;
    if is_valid {
        return Ok(());
    }
    Err(Failure::invalid(format!("`{name}` cannot be the name of a project or node"))
        .hint("up to 64 small letters, digits, `-` and `_`, a letter first, such as `line-follower`"))
}

/// The folder of the crate `nervure-node`.
fn node_crate(repository: Option<&Path>) -> Result<PathBuf, Failure> {
    let built_from = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = repository.map_or_else(built_from, Path::to_path_buf);
    let folder = repository.join("crates/node");
    let missing = |_| {
        Failure::invalid(format!("there is no clone of Nervure's repository at `{}`", repository.display()))
            .hint("name one with `--nervure FOLDER`: the crate nervure-node is built from it")
    };
    fs::metadata(folder.join("Cargo.toml")).map_err(missing)?;
    folder.canonicalize().map_err(missing)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("`{}` cannot be made", path.display())).because(error)
}
