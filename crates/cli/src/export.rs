//! `nervure export`: manifests for supervisors of processes, and for orchestrators of containers.
//!
//! A dataflow of one host becomes one service that runs it. For a dataflow with `machines`, each role
//! becomes a service that runs a daemon, which joins the fleet as one of its machines; `nervure start`
//! then places the dataflow as on any other machines.

mod cluster;
mod exported;
mod kubernetes;
mod nomad;
mod systemd;
mod yaml;

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use clap::Subcommand;

use self::exported::Manifest;
use crate::{failure::Failure, output};

#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// Write a service of systemd that runs a dataflow on this machine.
    ///
    /// For a file with `machines`, it writes the services of the daemons instead: `nervure.service`
    /// for each machine, and `nervure-coordinator.service` for the one of `nervure up`.
    Systemd(systemd::SystemdArguments),
    /// Write a manifest for Kubernetes.
    ///
    /// A Deployment runs a dataflow of one host. For a file with `machines`, each role is a machine
    /// of the fleet: a StatefulSet wherever there is room, or with `--bind` a DaemonSet on one node of
    /// the cluster. The invitation is in the Secret `nervure-invitation`.
    Kubernetes(cluster::ClusterArguments),
    /// Write a job for Nomad, in JSON, for the driver of Docker.
    ///
    /// The job runs a dataflow of one host. For a file with `machines`, each role is a machine of the
    /// fleet, and a group of the job. The invitation is a variable of Nomad.
    Nomad(cluster::ClusterArguments),
}

/// Writes manifests.
pub fn export(command: &ExportCommand) -> Result<ExitCode, Failure> {
    let (exported, manifests) = match command {
        ExportCommand::Systemd(arguments) => (&arguments.exported, systemd::export(arguments)?),
        ExportCommand::Kubernetes(arguments) => {
            (&arguments.exported, kubernetes::export(arguments)?)
        }
        ExportCommand::Nomad(arguments) => (&arguments.exported, nomad::export(arguments)?),
    };
    match &exported.out {
        Some(folder) => write_files(folder, &manifests)?,
        None => output::write(&text_of(&manifests))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of all files. Where there are several, each begins with a comment.
fn text_of(manifests: &[Manifest]) -> String {
    match manifests {
        [only] => only.text.clone(),
        several => {
            let texts = several
                .iter()
                .map(|Manifest { name, text }| format!("# {name}\n{text}"));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Writes new files. A file that exists may have been edited: it is an error.
fn write_files(folder: &Path, manifests: &[Manifest]) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::internal(format!("cannot write {}", path.display())).because(error)
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for manifest in manifests {
        let path = folder.join(&manifest.name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = match file {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = format!("{} exists", path.display());
                return Err(
                    Failure::invalid(text).hint("remove it, or name another folder by `--out`")
                );
            }
            file => file.map_err(|error| failed(&path, error))?,
        };
        file.write_all(manifest.text.as_bytes())
            .map_err(|error| failed(&path, error))?;
        note!("written: {}", path.display());
    }
    Ok(())
}
