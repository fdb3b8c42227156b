//! What all kinds of manifests have in common.

use std::path::PathBuf;

use clap::Args;
use nervure_dataflow::Dataflow;
use nervure_launch::Overrides;
use nervure_protocol::domain::{DOMAIN_VARIABLE, Domain};

use crate::{failure::Failure, overrides::OverrideArguments, source};

/// Options of all kinds of manifests.
#[derive(Debug, Args)]
pub struct Exported {
    /// A dataflow file.
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: OverrideArguments,
    /// Name the dataflow, instead of the name in its file.
    #[arg(long)]
    pub name: Option<String>,
    /// Write files to this folder, instead of text to stdout.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A file to write.
pub struct Manifest {
    pub name: String,
    pub text: String,
}

impl Exported {
    /// The dataflow, under the name that it runs by.
    pub fn read(&self) -> Result<Dataflow, Failure> {
        let mut dataflow = source::read(&self.file, &self.overrides.overrides())?;
        if let Some(name) = &self.name {
            nervure_dataflow::check_name(name)
                .map_err(|error| Failure::invalid(format!("`--name {name}`: {error}")))?;
            dataflow.name.clone_from(name);
        }
        Ok(dataflow)
    }

    /// The arguments of `nervure` that run the dataflow on one host, in the folder of its file.
    pub fn run(&self) -> Result<Vec<String>, Failure> {
        let file_name = self.file.file_name().and_then(|name| name.to_str());
        let file_name = file_name.ok_or_else(|| {
            Failure::invalid(format!("the name of {} is no text", self.file.display()))
        })?;
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(self.name.iter().map(|name| format!("--name={name}")));
        let Overrides { params, variables } = self.overrides.overrides();
        let variables = variables.iter();
        arguments.extend(variables.map(|one| format!("--env={one}")));
        arguments.extend(["--".to_owned(), file_name.to_owned()]);
        arguments.extend(params.iter().map(ToString::to_string));
        Ok(arguments)
    }

    /// Parameters and variables of a dataflow with `machines` are those of its start.
    pub fn refuse_overrides(&self) -> Result<(), Failure> {
        let Overrides { params, variables } = self.overrides.overrides();
        match params.iter().chain(&variables).next() {
            Some(one) => Err(Failure::invalid(format!(
                "`{one}` is for the nodes, and the manifest runs the daemons of their machines"
            ))
            .hint("give it to `nervure start`")),
            None => Ok(()),
        }
    }
}

/// The environment variable of the domain, unless it is the default domain.
pub fn domain_variable() -> Option<(&'static str, String)> {
    let domain = Domain::of_environment().ok()?;
    let name = domain.name()?;
    Some((DOMAIN_VARIABLE, name.to_owned()))
}
