//! The command lines of the fleet.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use clap::{Args, Subcommand};
use nervure_coordinator::{Address, Invitation, ParseInvitationError, Role, check_machine_name};
use nervure_fleet::binding::Binding;
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, option_values::parse_duration, overrides::OverrideArguments};

/// The longest line with an invitation.
const MAX_INVITATION_BYTES: u64 = 1024;

#[derive(Debug, Args)]
pub struct UpArguments {
    /// Listen on this address alone, for machines and links. Default: as the last time, and at first port
    /// 7700 of all addresses of this machine.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<Address>,
    /// Begin an empty fleet, although the state of the one before is gone: its machines have to be invited
    /// again.
    #[arg(long)]
    pub new_fleet: bool,
    /// Name this machine. Default: its host name.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,
    /// Give this machine a label, by which roles with `labels` find it; again for each label.
    /// Default: as the last time.
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Keep the state of the fleet in etcd, instead of in a file: the addresses of its members on this
    /// host, or of tunnels to them, such as `etcd://127.0.0.1:2379,127.0.0.1:3379`. Default: as the last
    /// time. Needs a build with the feature `etcd`.
    #[arg(long, value_name = "etcd://IP:PORT,..", value_parser = parse_store)]
    pub store: Option<StoreAddress>,
}

/// The addresses of members of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAddress(pub Vec<SocketAddr>);

#[derive(Debug, Args)]
pub struct JoinArguments {
    /// The text after `nervure join` that `nervure up` has printed, or `-` to read it from stdin.
    /// Default for a machine that has not joined before: NERVURE_INVITATION.
    pub invitation: Option<InvitationArgument>,
    /// Name this machine, when it joins. Default: its host name.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,
    /// Give this machine a label, by which roles with `labels` find it; again for each label.
    /// Default: as the last time.
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Look for the coordinator of the fleet at this address too, if it has moved to one that this
    /// machine cannot learn. A daemon that runs uses it at once.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "invitation")]
    pub at: Option<Address>,
    /// Run the daemon in the background, and return when it is ready. It is not started again at the
    /// next boot, other than a service of systemd.
    #[arg(long)]
    pub detach: bool,
    /// Write JSON to stdout.
    #[arg(long, requires = "detach")]
    pub json: bool,
}

/// Where an invitation comes from.
#[derive(Clone, Debug)]
pub enum InvitationArgument {
    Given(Invitation),
    /// So that its secret is not among the arguments of a process, which every user can see.
    Stdin,
}

impl FromStr for InvitationArgument {
    type Err = ParseInvitationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "-" => Ok(Self::Stdin),
            text => text.parse().map(Self::Given),
        }
    }
}

impl InvitationArgument {
    /// The invitation. Takes a line from stdin, if it is there.
    pub fn read(&self) -> Result<Invitation, Failure> {
        match self {
            Self::Given(invitation) => Ok(invitation.clone()),
            Self::Stdin => {
                let mut line = String::new();
                BufReader::new(std::io::stdin().take(MAX_INVITATION_BYTES))
                    .read_line(&mut line)
                    .map_err(|error| {
                        Failure::internal("cannot read the invitation from stdin").because(error)
                    })?;
                line.parse().map_err(|error: ParseInvitationError| {
                    Failure::invalid(format!("stdin: {error}"))
                })
            }
        }
    }
}

#[derive(Debug, Args)]
pub struct DownArguments {
    /// Kill it, if it does not end by itself.
    #[arg(long)]
    pub kill: bool,
    /// Write JSON to stdout.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StartArguments {
    /// A dataflow file with `machines`.
    pub file: PathBuf,
    /// Bind a role of the file to a machine. Default: the machine with the name of the role, or the
    /// first with its labels. With several machines (`robot=r01..r30`, `robot=r01,r02,r05`), start an
    /// instance of the dataflow for each, such as `two@r01`.
    #[arg(long, value_name = "ROLE=MACHINE", value_parser = Binding::from_str)]
    pub bind: Vec<Binding>,
    /// Start one instance after the other, each in the place of the one of its name that runs. A
    /// failure ends that: the instance of before is started again, and what runs where is shown.
    #[arg(long)]
    pub rolling: bool,
    /// Replace the program of this node alone, in the dataflow that runs or its instances; all other
    /// nodes go on. Its inputs, outputs and settings have to be the same. A failure starts the program
    /// of before again.
    #[arg(long, value_name = "NODE", requires = "rolling")]
    pub node: Option<String>,
    /// Require an instance to run for this long without a failure, once it is ready, before the next
    /// one is replaced.
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "rolling", value_parser = parse_duration)]
    pub healthy_for: Duration,
    /// Take it for a failure if a step takes longer: to prepare an instance, to stop the one of before,
    /// or to start it until it is ready.
    #[arg(long, value_name = "DURATION", default_value = "60s", requires = "rolling", value_parser = parse_duration)]
    pub step_timeout: Duration,
    #[command(flatten)]
    pub overrides: OverrideArguments,
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
    /// Add a machine over SSH: invite it, and let it join.
    ///
    /// Connects once with the `ssh` of this machine and its settings; prompts of SSH are on this
    /// terminal. Runs `nervure join --detach` on the other machine, where Nervure has to be installed.
    /// Returns when the machine can be reached.
    Add(AddArguments),
    /// Make an invitation for another machine.
    Invite(InviteArguments),
    /// Admit a machine that waits for approval.
    Approve {
        /// Name of the machine.
        name: String,
        /// Write JSON to stdout.
        #[arg(long)]
        json: bool,
    },
    /// Exclude a machine from the fleet.
    ///
    /// The coordinator and all other machines refuse it from then on. Nodes that run on it go on, as
    /// it cannot be reached; those with `on_partition: stop` are stopped by its own daemon.
    Revoke {
        /// Name of the machine.
        name: String,
        /// Write JSON to stdout.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct AddArguments {
    /// The machine, as SSH knows it.
    #[arg(value_name = "USER@HOST", value_parser = parse_host)]
    pub host: String,
    /// Name the machine in the fleet. Default: its host name.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,
    /// Role of the machine: `operator`, `robot` or `observer`.
    #[arg(long, value_name = "ROLE", default_value = "robot", value_parser = Role::from_str)]
    pub role: Role,
    /// Give the machine a label, by which roles with `labels` find it; again for each label.
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Run this command there, instead of the `nervure` of its PATH, `~/.local/bin` or
    /// `~/.cargo/bin`.
    #[arg(long, value_name = "PATH", default_value = "nervure")]
    pub program: String,
    /// Write JSON to stdout.
    #[arg(long)]
    pub json: bool,
    /// Pass these options to `ssh`, such as `-p 2222`.
    #[arg(last = true, value_name = "SSH-OPTION")]
    pub ssh_options: Vec<String>,
}

#[derive(Debug, Args)]
pub struct InviteArguments {
    /// Role of the machine: `operator` (start, stop and change dataflows, and invite), `robot` (run
    /// dataflows that operators start on it) or `observer` (look).
    #[arg(long, value_name = "ROLE", default_value = "robot", value_parser = Role::from_str)]
    pub role: Role,
    /// Invite any number of machines, such as many from one image. Each waits for `nervure machine
    /// approve`.
    #[arg(long)]
    pub with_approval: bool,
    /// How long the invitation is valid.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub valid: Duration,
    /// Write JSON to stdout.
    #[arg(long)]
    pub json: bool,
}

fn parse_name(text: &str) -> Result<String, String> {
    check_machine_name(text).map(|()| text.to_owned())
}

/// An option of `ssh` is no host.
fn parse_host(text: &str) -> Result<String, String> {
    match text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) {
        true => Err(
            "expected a host, such as `robot`, `pi@192.168.1.20` or one of ~/.ssh/config"
                .to_owned(),
        ),
        false => Ok(text.to_owned()),
    }
}

fn parse_store(text: &str) -> Result<StoreAddress, String> {
    let addresses = text.strip_prefix("etcd://").map(|addresses| {
        let addresses = addresses.split(',').map(str::parse);
        addresses.collect::<Result<Vec<_>, _>>()
    });
    match addresses {
        Some(Ok(addresses)) => Ok(StoreAddress(addresses)),
        _ => Err("expected `etcd://IP:PORT`, such as `etcd://127.0.0.1:2379`".to_owned()),
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() && !text.is_empty() => {
            Ok((name.to_owned(), text.to_owned()))
        }
        _ => Err("expected `NAME=TEXT`, such as `gpu=true`".to_owned()),
    }
}
