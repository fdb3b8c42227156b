//! Python environments of nodes, for `--uv`: every node whose `build` installs Python packages has
//! its own, so that the packages of one node cannot break those of another. `nervure build --uv`
//! makes them.
//!
//! They are in `.nervure/python/FILE/NODE` beside the dataflow file, where FILE is its name without
//! the extension.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

use nervure_dataflow::{Dataflow, Entry, Host, Node, Surroundings};

use crate::error::Error;

/// The file in an environment that has the node's `build`, once it has succeeded.
const RECORD: &str = "nervure-build";

/// The environments of the nodes of a dataflow file.
#[derive(Debug)]
pub struct Environments {
    file: PathBuf,
    folder: PathBuf,
}

/// The environment of a node, which need not exist yet.
#[derive(Debug)]
pub struct Environment<'n> {
    node: &'n Node,
    folder: PathBuf,
}

impl Environments {
    /// The environments of a dataflow file.
    ///
    /// # Errors
    /// If the folder of the file cannot be found.
    pub fn of(file: &Path) -> Result<Self, Error> {
        let absolute = std::path::absolute(file).map_err(|error| {
            Error::internal(format!("cannot find the folder of `{}`", file.display()))
                .because(error)
        })?;
        let folder = absolute.with_file_name(".nervure").join("python");
        Ok(Self {
            file: file.to_owned(),
            folder: folder.join(absolute.file_stem().unwrap_or_default()),
        })
    }

    /// The folder of the environments.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The environment of a node; `None` if its `build` installs no Python packages.
    ///
    /// # Errors
    /// If the node shares a process, which has one Python.
    pub fn of_node<'n>(&self, node: &'n Node) -> Result<Option<Environment<'n>>, Error> {
        if !installs_packages(node) {
            return Ok(None);
        }
        if let Some(process) = &node.settings.process {
            let text = format!(
                "node `{}` shares the process `{process}`, and cannot have a Python environment of its own",
                node.id
            );
            return Err(Error::invalid(text)
                .because(self.place(node))
                .hint("leave out `--uv`, or remove `process`"));
        }
        let folder = self.folder.join(&node.id);
        Ok(Some(Environment { node, folder }))
    }

    /// A host on which the commands in the environments are on the PATH.
    #[must_use]
    pub fn host<'a>(&self, host: &'a dyn Surroundings) -> EnvironmentHost<'a> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let bins = entries.map(|entry| entry.path().join("bin")).collect();
        EnvironmentHost { host, bins }
    }

    /// Lets the nodes that have environments run in them.
    ///
    /// # Errors
    /// If the environment of a node is missing, or of another `build`.
    pub fn activate(&self, dataflow: &mut Dataflow) -> Result<(), Error> {
        for node in &mut dataflow.nodes {
            let Some(environment) = self.of_node(node)? else {
                continue;
            };
            if !environment.is_built() {
                let text = format!("node `{}` has no Python environment yet", node.id);
                let file = self.file.display();
                return Err(Error::invalid(text).because(self.place(node)).hint(format!(
                    "make it: `nervure build --uv {file}`, or `nervure run --uv --build {file}`"
                )));
            }
            let variables = environment.variables()?;
            node.settings.env.extend(variables);
        }
        Ok(())
    }

    /// The place of a node in its file, as a cause of an error.
    #[must_use]
    pub fn place(&self, node: &Node) -> String {
        let name = self.file.display();
        let build = node.build.as_deref().unwrap_or_default().trim();
        format!("{name}:{}: `build: {build}`", node.line)
    }
}

impl Environment<'_> {
    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the node's `build` has succeeded in it.
    #[must_use]
    pub fn is_built(&self) -> bool {
        fs::read_to_string(self.folder.join(RECORD)).ok() == self.node.build
    }

    /// Records that the node's `build` has succeeded in it.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn record_build(&self) -> io::Result<()> {
        let build = self.node.build.as_deref().unwrap_or_default();
        fs::write(self.folder.join(RECORD), build)
    }

    /// Removes the record of a build.
    ///
    /// # Errors
    /// If there is one that cannot be removed.
    pub fn forget_build(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join(RECORD)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The environment variables of processes in it.
    ///
    /// # Errors
    /// If its folder cannot be on the PATH.
    pub fn variables(&self) -> Result<BTreeMap<String, String>, Error> {
        let folder = &self.folder;
        let own = self.node.settings.env.get("PATH").map(Into::into);
        let path = own.or_else(|| env::var_os("PATH")).unwrap_or_default();
        let folders = [folder.join("bin")].into_iter();
        let path = env::join_paths(folders.chain(env::split_paths(&path))).map_err(|error| {
            let text = format!("`{}` cannot be on the PATH", folder.display());
            Error::internal(text).because(error)
        })?;
        let text = |name: &str, value: &std::ffi::OsStr| {
            let value = value.to_str().map(str::to_owned);
            value.ok_or_else(|| Error::internal(format!("{name} is not valid UTF-8")))
        };
        Ok(BTreeMap::from([
            ("PATH".to_owned(), text("PATH", &path)?),
            (
                "VIRTUAL_ENV".to_owned(),
                text("the folder of the dataflow", folder.as_os_str())?,
            ),
        ]))
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

    fn argument(&self, name: &str) -> Option<String> {
        self.host.argument(name)
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

/// Whether the node's `build` calls pip or uv, and the node does not choose its own environment.
fn installs_packages(node: &Node) -> bool {
    let is_installer = |word: &str| matches!(word, "pip" | "pip3" | "uv");
    let build = node.build.as_deref().unwrap_or_default();
    let installs = build.split_whitespace().any(is_installer);
    installs && !node.settings.env.contains_key("VIRTUAL_ENV")
}
