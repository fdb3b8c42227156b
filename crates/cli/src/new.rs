//! `nervure new`: creates projects and nodes from templates.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use crate::{failure::Failure, output};

#[derive(Debug, Args)]
pub struct NewArguments {
    /// Name of the project and its folder, or of the node.
    pub name: String,
    /// Create a project or a node.
    #[arg(long, default_value = "project")]
    pub kind: Kind,
    /// Write it in this language.
    #[arg(long, visible_alias = "lang", default_value = "python")]
    pub language: Language,
    /// Build `nervure-node` from this clone of Nervure's repository, not from crates.io.
    ///
    /// Default: the clone that this command was built from, if it still exists.
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
    C,
    #[value(alias = "c++")]
    Cpp,
}

/// Creates a project or a node.
pub fn new(arguments: &NewArguments) -> Result<ExitCode, Failure> {
    check_name(&arguments.name)?;
    match arguments.kind {
        Kind::Project => new_project(arguments),
        Kind::Node => new_node(arguments),
    }
}

/// A file of a project: its path, and its text with `{{..}}` placeholders (see [`fill`]).
type Template = (&'static str, &'static str);

const PYTHON_PROJECT: &[Template] = &[
    (
        "pyproject.toml",
        include_str!("../templates/python/pyproject.toml.template"),
    ),
    (
        "dataflow.yml",
        include_str!("../templates/python/dataflow.yml"),
    ),
    ("camera.py", include_str!("../templates/python/camera.py")),
    (
        "brightness.py",
        include_str!("../templates/python/brightness.py"),
    ),
    ("show.py", include_str!("../templates/python/show.py")),
    (
        "tests/test_nodes.py",
        include_str!("../templates/python/tests/test_nodes.py"),
    ),
    ("README.md", include_str!("../templates/python/README.md")),
];
const RUST_PROJECT: &[Template] = &[
    (
        "dataflow.yml",
        include_str!("../templates/rust/dataflow.yml"),
    ),
    (
        "Cargo.toml",
        include_str!("../templates/rust/Cargo.toml.template"),
    ),
    ("src/lib.rs", include_str!("../templates/rust/src/lib.rs")),
    (
        "src/bin/camera.rs",
        include_str!("../templates/rust/src/bin/camera.rs"),
    ),
    (
        "src/bin/brightness.rs",
        include_str!("../templates/rust/src/bin/brightness.rs"),
    ),
    (
        "src/bin/show.rs",
        include_str!("../templates/rust/src/bin/show.rs"),
    ),
    (
        "tests/dataflow.rs",
        include_str!("../templates/rust/tests/dataflow.rs"),
    ),
    ("README.md", include_str!("../templates/rust/README.md")),
];
const C_PROJECT: &[Template] = &[
    (
        "CMakeLists.txt",
        include_str!("../templates/c/CMakeLists.txt.template"),
    ),
    ("dataflow.yml", include_str!("../templates/c/dataflow.yml")),
    ("camera.c", include_str!("../templates/c/camera.c")),
    ("brightness.c", include_str!("../templates/c/brightness.c")),
    ("show.c", include_str!("../templates/c/show.c")),
    ("README.md", include_str!("../templates/c/README.md")),
];
const CPP_PROJECT: &[Template] = &[
    (
        "CMakeLists.txt",
        include_str!("../templates/cpp/CMakeLists.txt.template"),
    ),
    (
        "dataflow.yml",
        include_str!("../templates/cpp/dataflow.yml"),
    ),
    ("camera.cpp", include_str!("../templates/cpp/camera.cpp")),
    (
        "brightness.cpp",
        include_str!("../templates/cpp/brightness.cpp"),
    ),
    ("show.cpp", include_str!("../templates/cpp/show.cpp")),
    ("README.md", include_str!("../templates/cpp/README.md")),
];
const PYTHON_NODE: &str = include_str!("../templates/node/node.py");
const C_NODE: &str = include_str!("../templates/node/node.c");
const CPP_NODE: &str = include_str!("../templates/node/node.cpp");
const RUST_NODE: &str = include_str!("../templates/node/node.rs");
/// Manifest of a Rust node outside of a crate.
const RUST_NODE_MANIFEST: &str = include_str!("../templates/node/Cargo.toml.template");
const SCHEMA: &str = "dataflow.schema.json";

fn new_project(arguments: &NewArguments) -> Result<ExitCode, Failure> {
    let NewArguments {
        name,
        language,
        nervure,
        ..
    } = arguments;
    let (templates, ignored) = match language {
        Language::Python => (PYTHON_PROJECT, "__pycache__/\n*.egg-info/\n"),
        Language::Rust => (RUST_PROJECT, "/target\n"),
        Language::C => (C_PROJECT, "/build\n"),
        Language::Cpp => (CPP_PROJECT, "/build\n"),
    };
    let source = CrateSource::new(nervure.as_deref())?;
    let folder = Path::new(name);
    make_folder(folder)?;
    for (path, text) in templates {
        write(&folder.join(path), &fill(text, name, &source))?;
    }
    write(&folder.join(".gitignore"), ignored)?;
    write(
        &folder.join(SCHEMA),
        &format!("{:#}\n", nervure_dataflow::schema()),
    )?;
    let build = match language {
        Language::Python => "",
        _ => "  nervure build dataflow.yml\n",
    };
    let test = match language {
        Language::Python => "  python -m pytest  # after `pip install pytest`\n",
        Language::Rust => "  cargo test\n",
        Language::C | Language::Cpp => "",
    };
    output::write(&format!(
        "created {name}: three nodes and the dataflow that connects them\n\n  cd {name}\n{build}  nervure run dataflow.yml\n{test}"
    ))?;
    if *language == Language::Rust {
        note!("{}", source.note());
    }
    Ok(ExitCode::SUCCESS)
}

fn new_node(arguments: &NewArguments) -> Result<ExitCode, Failure> {
    let name = &arguments.name;
    let (file, entry) = match arguments.language {
        Language::Python => {
            let file = PathBuf::from(format!("{name}.py"));
            write_new(&file, PYTHON_NODE)?;
            (file, format!("path: {name}.py"))
        }
        Language::C => new_cmake_node(name, "c", C_NODE, C_PROJECT[0].1)?,
        Language::Cpp => new_cmake_node(name, "cpp", CPP_NODE, CPP_PROJECT[0].1)?,
        Language::Rust if Path::new("Cargo.toml").is_file() => {
            let file = Path::new("src/bin").join(format!("{name}.rs"));
            write_new(&file, RUST_NODE)?;
            (
                file,
                format!("build: cargo build --release\n    path: target/release/{name}"),
            )
        }
        Language::Rust => {
            let source = CrateSource::new(arguments.nervure.as_deref())?;
            let folder = Path::new(name);
            make_folder(folder)?;
            write(
                &folder.join("Cargo.toml"),
                &fill(RUST_NODE_MANIFEST, name, &source),
            )?;
            write(&folder.join(".gitignore"), "/target\n")?;
            let file = folder.join("src/main.rs");
            write(&file, RUST_NODE)?;
            note!("{}", source.note());
            let build = format!("build: cargo build --release --manifest-path {name}/Cargo.toml");
            (
                file,
                format!("{build}\n    path: {name}/target/release/{name}"),
            )
        }
    };
    output::write(&format!(
        "created {}; to run it, add to the `nodes` of a dataflow file:\n\n  - id: {name}\n    {entry}\n    inputs: {{input: NODE/OUTPUT}}\n    outputs: [output]\n",
        file.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A node in C or C++: in the project of the current folder, whose CMake makes a node of each file, or in a folder of
/// its own. Returns its file, and its lines in a dataflow file.
fn new_cmake_node(
    name: &str,
    extension: &str,
    text: &str,
    manifest: &str,
) -> Result<(PathBuf, String), Failure> {
    let folder = match Path::new("CMakeLists.txt").is_file() {
        true => Path::new("."),
        false => {
            make_folder(Path::new(name))?;
            let manifest = fill(manifest, name, &CrateSource::Registry);
            write(&Path::new(name).join("CMakeLists.txt"), &manifest)?;
            write(&Path::new(name).join(".gitignore"), "/build\n")?;
            Path::new(name)
        }
    };
    let file = folder.join(format!("{name}.{extension}"));
    write_new(&file, text)?;
    let build = folder.join("build");
    let entry = format!(
        "build: |\n      cmake -S {folder} -B {build}\n      cmake --build {build}\n    path: {program}",
        folder = folder.display(),
        build = build.strip_prefix(".").unwrap_or(&build).display(),
        program = build
            .strip_prefix(".")
            .unwrap_or(&build)
            .join(name)
            .display(),
    );
    let file = file.strip_prefix(".").map(Path::to_owned).unwrap_or(file);
    Ok((file, entry))
}

/// Refuses a name that is not valid for a folder, a crate and a node at once.
fn check_name(name: &str) -> Result<(), Failure> {
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
        && name.len() <= 64;
    if is_valid {
        return Ok(());
    }
    Err(
        Failure::invalid(format!("`{name}` cannot be the name of a project or node")).hint(
            "use at most 64 lower-case letters, digits, `-` and `_`, with a letter first, such as `line-follower`",
        ),
    )
}

/// Where cargo finds the crate `nervure-node`, in the version of this command.
enum CrateSource {
    Registry,
    /// The crate's folder in a clone of the repository.
    Clone(PathBuf),
}

impl CrateSource {
    fn new(repository: Option<&Path>) -> Result<Self, Failure> {
        let crate_of = |repository: &Path| {
            let folder = repository.join("crates/node");
            fs::metadata(folder.join("Cargo.toml")).and_then(|_| folder.canonicalize())
        };
        match repository {
            Some(repository) => crate_of(repository).map(Self::Clone).map_err(|error| {
                let message = format!(
                    "there is no clone of Nervure's repository at `{}`",
                    repository.display()
                );
                Failure::invalid(message)
                    .because(error)
                    .hint("`--nervure` takes the folder that contains `crates/node`")
            }),
            None => {
                let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                Ok(crate_of(&built_from).map_or(Self::Registry, Self::Clone))
            }
        }
    }

    /// The lines at the end of a `Cargo.toml` that replace the published crate.
    fn patch(&self) -> String {
        match self {
            Self::Registry => String::new(),
            Self::Clone(folder) => format!(
                "\n# Builds nervure-node from a clone; without these lines it comes from crates.io.\n[patch.crates-io]\nnervure-node = {{ path = {:?} }}\n",
                folder.display().to_string()
            ),
        }
    }

    fn note(&self) -> String {
        match self {
            Self::Registry => concat!(
                "nervure-node ",
                env!("CARGO_PKG_VERSION"),
                " comes from crates.io; `--nervure FOLDER` takes it from a clone of Nervure's repository"
            )
            .to_owned(),
            Self::Clone(folder) => format!("nervure-node is built from {}", folder.display()),
        }
    }
}

fn fill(template: &str, name: &str, source: &CrateSource) -> String {
    template
        .replace("{{name}}", name)
        .replace("{{crate}}", &name.replace('-', "_"))
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{patch}}", &source.patch())
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(folder),
        _ => cannot_write(folder, &error),
    })
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    if path.exists() {
        return Err(exists(path));
    }
    write(path, text)
}

fn exists(path: &Path) -> Failure {
    Failure::invalid(format!("`{}` exists already", path.display()))
        .hint("choose another name, or remove the old one first")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("cannot create `{}`", path.display())).because(error)
}
