//! Python environments of nodes, for `--uv`: every node whose `build` installs Python packages has
//! its own, so that the packages of one node cannot break those of another.
//!
//! They are in `.nervure/python/FILE/NODE` beside the dataflow file, where FILE is its name without
//! the extension.

use std::{
    collections::BTreeMap,
    env, fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nervure_dataflow::{Dataflow, Entry, Host, Node, Surroundings};

use crate::failure::Failure;

/// Packages that `dora` and `nervure` use, and that a node's build may install in older versions.
const OWN_PACKAGES: [&str; 3] = ["numpy", "pyarrow", "pyyaml"];

/// The last versions of pyarrow that work with NumPy 1. Their metadata do not say so.
const ARROW_FOR_NUMPY_1: &str = "pyarrow<26";

/// The file in an environment that has the node's `build`, once it has succeeded.
const RECORD: &str = "nervure-build";

/// The environments of the nodes of a dataflow file.
#[derive(Debug)]
pub struct Environments {
    file: PathBuf,
    folder: PathBuf,
}

impl Environments {
    /// The environments of a dataflow file, which need not exist yet.
    pub fn of(file: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(file).map_err(|error| {
            Failure::internal(format!("cannot find the folder of `{}`", file.display()))
                .because(error)
        })?;
        let folder = absolute.with_file_name(".nervure").join("python");
        let folder = folder.join(absolute.file_stem().unwrap_or_default());
        let file = file.to_owned();
        Ok(Self { file, folder })
    }

    /// Refuses an environment for one of the nodes of a process, which has one Python.
    fn check_alone(&self, node: &Node) -> Result<(), Failure> {
        let Some(process) = &node.settings.process else {
            return Ok(());
        };
        let text = format!(
            "node `{}` shares the process `{process}`, and cannot have a Python environment of its own",
            node.id
        );
        Err(Failure::invalid(text)
            .because(self.place(node))
            .hint("leave out `--uv`, or remove `process`"))
    }

    /// A host on which the commands in the environments are on the PATH.
    pub fn host<'a>(&self, host: &'a dyn Surroundings) -> EnvironmentHost<'a> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let bins = entries.map(|entry| entry.path().join("bin")).collect();
        EnvironmentHost { host, bins }
    }

    /// Lets the nodes that have environments run in them.
    ///
    /// # Errors
    /// If the environment of a node is missing, or of another `build`.
    pub fn activate(&self, dataflow: &mut Dataflow) -> Result<(), Failure> {
        for node in &mut dataflow.nodes {
            if !installs_packages(node) {
                continue;
            }
            self.check_alone(node)?;
            let folder = self.folder.join(&node.id);
            if fs::read_to_string(folder.join(RECORD)).ok() != node.build {
                let text = format!("node `{}` has no Python environment yet", node.id);
                let file = self.file.display();
                return Err(Failure::invalid(text)
                    .because(self.place(node))
                    .hint(format!(
                        "make it: `nervure build --uv {file}`, or `nervure run --uv --build {file}`"
                    )));
            }
            let variables = variables(&folder, node)?;
            node.settings.env.extend(variables);
        }
        Ok(())
    }

    /// Where a node is declared, as a cause of an error.
    fn place(&self, node: &Node) -> String {
        let name = self.file.display();
        let build = node.build.as_deref().unwrap_or_default().trim();
        format!("{name}:{}: `build: {build}`", node.line)
    }
}

/// A host with additional folders of commands.
pub struct EnvironmentHost<'a> {
    host: &'a dyn Surroundings,
    bins: Vec<PathBuf>,
}

impl Surroundings for EnvironmentHost<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.host.variable(name)
    }

    fn entry(&self, path: &Path) -> Entry {
        self.host.entry(path)
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        self.host.names_in(folder)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.host.read(path)
    }

    fn has_command(&self, name: &str) -> bool {
        let is_command =
            |bin: &PathBuf| Host.entry(&bin.join(name)) == Entry::File { executable: true };
        self.bins.iter().any(is_command) || self.host.has_command(name)
    }
}

/// Makes environments.
#[derive(Debug)]
pub struct Uv {
    environments: Environments,
    uv: PathBuf,
    /// The Python of nodes without an environment.
    python: PathBuf,
    /// The folder of the package `nervure` of that Python.
    package: PathBuf,
}

impl Uv {
    /// Finds `uv`, and what goes into each environment.
    pub fn find(file: &Path) -> Result<Self, Failure> {
        let path = env::var_os("PATH").unwrap_or_default();
        let uv = env::split_paths(&path)
            .map(|folder| folder.join("uv"))
            .find(|uv| Host.entry(uv) == Entry::File { executable: true })
            .ok_or_else(|| {
                Failure::invalid("`--uv` needs the command `uv`, which is not on the PATH")
                    .hint("install it: `pip install uv`")
            })?;
        let python = nervure_keeper::python(&BTreeMap::new())
            .map_err(|error| Failure::internal("there is no Python for nodes").because(error))?;
        let package = output(
            Command::new(&python).args(["-c", "import nervure; print(nervure.__path__[0])"]),
        )
        .map_err(|error| {
            let text = format!("`{}` has no package `nervure`", python.display());
            Failure::internal(text)
                .because(error)
                .hint("see `nervure doctor`")
        })?;
        Ok(Self {
            environments: Environments::of(file)?,
            uv,
            python,
            package: package.into(),
        })
    }

    /// Makes the environment of a node, if its `build` installs Python packages. An environment of
    /// another `build` is replaced. Returns the environment variables of the build.
    pub fn begin(&self, node: &Node) -> Result<BTreeMap<String, String>, Failure> {
        if !installs_packages(node) {
            return Ok(BTreeMap::new());
        }
        self.environments.check_alone(node)?;
        let folder = self.environments.folder.join(&node.id);
        let record = folder.join(RECORD);
        if fs::read_to_string(&record).ok() != node.build {
            self.create(&folder, node)?;
        }
        // Until the build has succeeded again.
        let _ = fs::remove_file(&record);
        variables(&folder, node)
    }

    /// Completes the environment of a node after its build.
    pub fn finish(&self, node: &Node) -> Result<(), Failure> {
        if !installs_packages(node) {
            return Ok(());
        }
        let folder = self.environments.folder.join(&node.id);
        let variables = variables(&folder, node)?;
        let install = |packages: &[&str]| {
            let mut command = Command::new(&self.uv);
            command.args(["pip", "install", "--quiet"]).args(packages);
            run(command.envs(&variables))
        };
        let import = || {
            let mut command = Command::new(folder.join("bin/python"));
            output(command.args(["-c", "import pyarrow"]))
        };
        let complete = || {
            install(&OWN_PACKAGES)?;
            if import().is_err() {
                install(&[ARROW_FOR_NUMPY_1])?;
                import()?;
            }
            fs::write(
                folder.join(RECORD),
                node.build.as_deref().unwrap_or_default(),
            )
        };
        complete().map_err(|error| self.failed(node, error))
    }

    fn create(&self, folder: &Path, node: &Node) -> Result<(), Failure> {
        let failed = |error| self.failed(node, error);
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        note!("{}: creating {}", node.id, folder.display());
        let mut command = Command::new(&self.uv);
        command
            .args(["venv", "--quiet", "--python"])
            .args([&self.python, folder]);
        run(&mut command).map_err(failed)?;
        let packages = output(Command::new(folder.join("bin/python")).args([
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
        ]))
        .map_err(failed)?;
        symlink(&self.package, Path::new(&packages).join("nervure")).map_err(failed)?;
        // The environment has no pip: uv installs.
        for name in ["pip", "pip3"] {
            let script = format!("#!/bin/sh\nexec '{}' pip \"$@\"\n", self.uv.display());
            let path = folder.join("bin").join(name);
            fs::write(&path, script).map_err(failed)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        }
        Ok(())
    }

    fn failed(&self, node: &Node, error: io::Error) -> Failure {
        let text = format!("the Python environment of node `{}` was not made", node.id);
        Failure::internal(text)
            .because(error)
            .because(self.environments.place(node))
    }
}

/// Removes the environments of a dataflow file. Returns their folder, if there was one.
pub fn remove(file: &Path) -> Result<Option<PathBuf>, Failure> {
    let Environments { folder, .. } = Environments::of(file)?;
    match fs::remove_dir_all(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let text = format!("cannot remove `{}`", folder.display());
            return Err(Failure::internal(text).because(error));
        }
    }
    // Other files in the folder may have environments as well.
    for parent in folder.ancestors().skip(1).take(2) {
        let _ = fs::remove_dir(parent);
    }
    Ok(Some(folder))
}

/// Whether the node's `build` calls pip or uv, and the node does not choose its own environment.
fn installs_packages(node: &Node) -> bool {
    let is_installer = |word: &str| matches!(word, "pip" | "pip3" | "uv");
    let build = node.build.as_deref().unwrap_or_default();
    let installs = build.split_whitespace().any(is_installer);
    installs && !node.settings.env.contains_key("VIRTUAL_ENV")
}

/// The environment variables of processes in an environment.
fn variables(folder: &Path, node: &Node) -> Result<BTreeMap<String, String>, Failure> {
    let own = node.settings.env.get("PATH").map(Into::into);
    let path = own.or_else(|| env::var_os("PATH")).unwrap_or_default();
    let folders = [folder.join("bin")].into_iter();
    let path = env::join_paths(folders.chain(env::split_paths(&path))).map_err(|error| {
        let text = format!("`{}` cannot be on the PATH", folder.display());
        Failure::internal(text).because(error)
    })?;
    let text = |name: &str, value: &std::ffi::OsStr| {
        let value = value.to_str().map(str::to_owned);
        value.ok_or_else(|| Failure::internal(format!("{name} is not valid UTF-8")))
    };
    Ok(BTreeMap::from([
        ("PATH".to_owned(), text("PATH", &path)?),
        (
            "VIRTUAL_ENV".to_owned(),
            text("the folder of the dataflow", folder.as_os_str())?,
        ),
    ]))
}

/// Runs a command whose output goes to stderr.
fn run(command: &mut Command) -> io::Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .map_err(|error| named(command, error))?;
    if status.success() {
        Ok(())
    } else {
        Err(named(command, status))
    }
}

/// The output of a command, without the newline at its end.
fn output(command: &mut Command) -> io::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| named(command, error))?;
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(named(command, text(&output.stderr)))
    }
}

fn named(command: &Command, error: impl std::fmt::Display) -> io::Error {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    io::Error::other(format!("`{}`: {error}", words.join(" ")))
}
