//! Makes the Python environments of nodes, with `uv`.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nervure_dataflow::Node;
use nervure_launch::{environments::Environments, find_on_path};

use crate::failure::Failure;

/// Packages that `dora` and `nervure` use, and that a node's build may install in older versions.
const OWN_PACKAGES: [&str; 3] = ["numpy", "pyarrow", "pyyaml"];

/// The last versions of pyarrow that work with NumPy 1. Their metadata do not say so.
const ARROW_FOR_NUMPY_1: &str = "pyarrow<26";

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
        let uv = find_on_path("uv").ok_or_else(|| {
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
        let Some(environment) = self.environments.of_node(node)? else {
            return Ok(BTreeMap::new());
        };
        if !environment.is_built() {
            self.create(environment.folder(), node)?;
        }
        // Until the build has succeeded again.
        environment
            .forget_build()
            .map_err(|error| self.failed(node, error))?;
        Ok(environment.variables()?)
    }

    /// Completes the environment of a node after its build.
    pub fn finish(&self, node: &Node) -> Result<(), Failure> {
        let Some(environment) = self.environments.of_node(node)? else {
            return Ok(());
        };
        let variables = environment.variables()?;
        let install = |packages: &[&str]| {
            let mut command = Command::new(&self.uv);
            command.args(["pip", "install", "--quiet"]).args(packages);
            run(command.envs(&variables))
        };
        let import = || {
            let mut command = Command::new(environment.folder().join("bin/python"));
            output(command.args(["-c", "import pyarrow"]))
        };
        let complete = || {
            install(&OWN_PACKAGES)?;
            if import().is_err() {
                install(&[ARROW_FOR_NUMPY_1])?;
                import()?;
            }
            environment.record_build()
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
    let folder = Environments::of(file)?.folder().to_owned();
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
