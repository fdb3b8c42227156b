//! The command lines of the fleet.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};
use nervure_coordinator::{Invitation, check_machine_name};

use crate::overrides::Overrides;

#[derive(Debug, Args)]
pub struct UpArguments {
    /// Listen on this address, for machines and links. Default: port 7700 of the address towards
    /// the default route.
    #[arg(long, value_name = "IP:PORT")]
    pub address: Option<SocketAddr>,
    /// Name this machine. Default: its host name.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct JoinArguments {
    /// The text after `nervure join` that `nervure up` has printed. Not needed for a machine that
    /// has joined before.
    pub invitation: Option<Invitation>,
    /// Name this machine. Default: its host name.
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "invitation")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct StartArguments {
    /// A dataflow file with `machines`.
    pub file: PathBuf,
    /// Bind a role of the file to a machine. Default: the machine with the name of the role.
    #[arg(long, value_name = "ROLE=MACHINE", value_parser = parse_binding)]
    pub bind: Vec<(String, String)>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Name the dataflow, instead of the name in its file.
    #[arg(long)]
    pub name: Option<String>,
    /// Write what happens as JSON to stdout, one object per line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// List the machines of the fleet, and what runs on them.
    List {
        /// Write JSON to stdout.
        #[arg(long)]
        json: bool,
    },
}

fn parse_name(text: &str) -> Result<String, String> {
    check_machine_name(text).map(|()| text.to_owned())
}

fn parse_binding(text: &str) -> Result<(String, String), String> {
    let (role, machine) = text
        .split_once('=')
        .ok_or("expected `ROLE=MACHINE`, such as `robot=r07`")?;
    check_machine_name(machine)?;
    Ok((role.to_owned(), machine.to_owned()))
}
