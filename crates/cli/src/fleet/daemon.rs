//! `nervure join`, and the daemon of this machine, with the coordinator or without.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use nervure_coordinator::{
    Address, CallError, Client, Invitation, Joining, PORT, check_machine_name,
};
use nervure_daemon::{
    Config, DaemonError, Host, PAIRING,
    folder::{Folder, Pairing},
    state::Resources,
};
use nervure_fleet::connection::{client, folder, resolved};
use nervure_identity::KeyPair;
use nervure_inspect::{daemon, logs, processes, threads};
use nervure_protocol::{
    daemon_to_daemon::{LogFilter, Usage},
    domain::Domain,
    report::LogRecord,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::arguments::{InvitationArgument, JoinArguments};
use crate::failure::Failure;

/// The most addresses of the coordinator that are kept: the newest.
const MAX_ADDRESSES: usize = 8;

/// Environment variable with the invitation of a machine that has not joined before.
const INVITATION_VARIABLE: &str = "NERVURE_INVITATION";

/// Poll interval of a machine that waits for approval.
const APPROVAL_POLL: Duration = Duration::from_secs(2);

/// Pairs this machine with a fleet, and runs its daemon.
pub fn join(arguments: &JoinArguments) -> Result<ExitCode, Failure> {
    let folder = folder()?;
    let invitation = arguments.invitation.as_ref().map(InvitationArgument::read);
    let invitation = invitation.transpose()?;
    let pairing = pair(&folder, arguments, invitation.as_ref())?;
    if let (true, Some(process)) = (
        invitation.is_some() || arguments.at.is_some(),
        daemon::process()?,
    ) {
        note!(
            "{} belongs to the fleet; its daemon (process {process}) uses the new address",
            pairing.name
        );
        return Ok(ExitCode::SUCCESS);
    }
    serve(folder, pairing, None)
}

/// Pairs this machine with the fleet of an invitation, which may be in the environment; without one, it
/// is paired already.
pub fn pair(
    folder: &Folder,
    arguments: &JoinArguments,
    invitation: Option<&Invitation>,
) -> Result<Pairing, Failure> {
    let known: Option<Pairing> = folder
        .read(PAIRING)
        .map_err(nervure_inspect::Error::Folder)?;
    let of_environment = match (invitation, &known) {
        (None, None) => Some(invitation_of_environment()?),
        _ => None,
    };
    let Some(invitation) = invitation.or(of_environment.as_ref()) else {
        return rejoin(folder, known, arguments);
    };
    let key = load_key(folder)?;
    let name = match (&arguments.name, known) {
        (Some(name), _) => name.clone(),
        (None, Some(known)) if known.coordinator == invitation.coordinator.to_string() => {
            known.name
        }
        _ => host_name()?,
    };
    let at = resolved(&invitation.addresses, invitation.coordinator)?;
    let client = client(&at, invitation.coordinator, &key)?;
    let paired = await_approval(&client, invitation, &name)?;
    if arguments
        .name
        .as_ref()
        .is_some_and(|asked| *asked != paired)
    {
        note!("this machine is `{paired}` in the fleet");
    }
    // The address that has answered is the first.
    let mut addresses: Vec<Address> = vec![client.address().into()];
    addresses.extend(invitation.addresses.iter().cloned());
    pairing(
        folder,
        paired,
        addresses,
        invitation.coordinator.to_string(),
        &arguments.label,
    )
}

/// The pairing of a machine that has joined before.
fn rejoin(
    folder: &Folder,
    known: Option<Pairing>,
    arguments: &JoinArguments,
) -> Result<Pairing, Failure> {
    let mut known = known.ok_or_else(belongs_to_no_fleet)?;
    if arguments
        .name
        .as_ref()
        .is_some_and(|asked| *asked != known.name)
    {
        note!("this machine is `{}` in the fleet", known.name);
    }
    if !arguments.label.is_empty() || arguments.at.is_some() {
        let mut addresses = Vec::new();
        if let Some(at) = &arguments.at {
            addresses.push(check_address(folder, &known, at)?.into());
            addresses.push(at.clone());
        }
        addresses.push(known.address);
        addresses.extend(known.others);
        let (name, coordinator) = (known.name, known.coordinator);
        known = pairing(folder, name, addresses, coordinator, &arguments.label)?;
    }
    Ok(known)
}

/// Checks that the coordinator of the fleet is at an address. Returns its IP address.
fn check_address(folder: &Folder, known: &Pairing, at: &Address) -> Result<SocketAddr, Failure> {
    let coordinator = known
        .coordinator_key()
        .map_err(nervure_inspect::Error::Folder)?;
    let endpoints = resolved(std::slice::from_ref(at), coordinator)?;
    let client = client(&endpoints, coordinator, &load_key(folder)?)?;
    client.join("", &known.name)?;
    Ok(client.address())
}

/// The invitation of a container or a service: other users of a machine can read the arguments of a
/// process, and not its environment. It may begin with `nervure join`, as `nervure machine invite`
/// prints it.
fn invitation_of_environment() -> Result<Invitation, Failure> {
    let text = std::env::var(INVITATION_VARIABLE).map_err(|_| belongs_to_no_fleet())?;
    let text = text.trim();
    let text = text.strip_prefix("nervure join").unwrap_or(text);
    text.trim()
        .parse()
        .map_err(|error| Failure::invalid(format!("{INVITATION_VARIABLE}: {error}")))
}

fn belongs_to_no_fleet() -> Failure {
    Failure::invalid("this machine belongs to no fleet")
        .hint("`nervure up` on another machine prints the command line for this one")
}

/// Joins, and waits while an operator has not approved this machine. Returns its name.
fn await_approval(client: &Client, invitation: &Invitation, name: &str) -> Result<String, Failure> {
    let mut waits = false;
    loop {
        match client.join(&invitation.secret, name) {
            Ok(Joining::Paired(name)) => return Ok(name),
            Ok(Joining::Waiting(name)) => {
                if !std::mem::replace(&mut waits, true) {
                    note!(
                        "waiting for approval: `nervure machine approve {name}` on an operator's machine"
                    );
                }
            }
            // The coordinator may be away for a while.
            Err(CallError::Unreachable { .. }) if waits => {}
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(APPROVAL_POLL);
    }
}

pub(super) fn load_key(folder: &Folder) -> Result<KeyPair, Failure> {
    KeyPair::load_or_generate(&folder.key()).map_err(|error| Failure::internal(error.to_string()))
}

/// The port of a fleet without another: any free one if it is not in the default domain, which later
/// starts keep.
pub(super) fn default_port() -> Result<u16, Failure> {
    Ok(match Domain::of_environment()?.name() {
        Some(_) => 0,
        None => PORT,
    })
}

/// Writes the pairing, with the port of the link from before, and the labels from before if none are given.
/// There is an address at least.
pub(super) fn pairing(
    folder: &Folder,
    name: String,
    mut addresses: Vec<Address>,
    coordinator: String,
    labels: &[(String, String)],
) -> Result<Pairing, Failure> {
    let known: Option<Pairing> = folder
        .read(PAIRING)
        .map_err(nervure_inspect::Error::Folder)?;
    let link_port = match &known {
        Some(known) => known.link_port,
        None => default_port()?,
    };
    let labels = match labels {
        [] => known.map(|known| known.labels).unwrap_or_default(),
        labels => labels.iter().cloned().collect(),
    };
    let mut seen = BTreeSet::new();
    addresses.retain(|address| seen.insert(address.clone()));
    addresses.truncate(MAX_ADDRESSES);
    let pairing = Pairing {
        name,
        address: addresses.remove(0),
        others: addresses,
        coordinator,
        link_port,
        labels,
    };
    folder
        .write(PAIRING, &pairing)
        .map_err(nervure_inspect::Error::Folder)?;
    Ok(pairing)
}

/// Runs the daemon until a signal. Its dataflows continue, and the next daemon finds them.
pub(super) fn serve(
    folder: Folder,
    pairing: Pairing,
    address: Option<IpAddr>,
) -> Result<ExitCode, Failure> {
    nervure_node::diagnostics::install_always()
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    threads::spawn(move || {
        if signals.forever().next().is_some() {
            // No node is left in order: for its neighbours a daemon that restarts was never gone.
            std::process::exit(0);
        }
    })?;
    let name = pairing.name.clone();
    nervure_node::binding::set_machine(&name);
    let on_ready = || {
        note!("{name} is ready; its dataflows go on when this ends, and `nervure stop` stops them")
    };
    let end = nervure_daemon::serve(
        Config {
            folder,
            pairing,
            address,
            host: Arc::new(Command),
        },
        on_ready,
    );
    end.map(|()| ExitCode::SUCCESS)
        .map_err(|error| match error {
            DaemonError::Runs(_) => Failure::invalid(error.to_string())
                .hint("NERVURE_STATE names another folder, for a second daemon on this machine"),
            _ => Failure::internal(error.to_string()),
        })
}

/// The services of this command for its daemon.
struct Command;

impl Host for Command {
    fn resources(&self) -> Resources {
        Resources {
            cpus: std::thread::available_parallelism()
                .map_or(0, |cpus| cpus.get().try_into().unwrap_or(u32::MAX)),
            memory: nervure_launch::memory::total().unwrap_or(0),
            gpus: gpus(),
        }
    }

    fn usage(&self, pid: u32) -> Option<Usage> {
        processes::of_node(pid)
    }

    fn logs(&self, folder: &Path, filter: &LogFilter) -> Result<Vec<LogRecord>, String> {
        logs::read_for_other(folder, filter)
    }
}

/// Graphics processors: render nodes of the kernel, or devices of NVIDIA's driver, which need not have
/// any.
fn gpus() -> u32 {
    let devices = |folder: &str, prefix: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_device = |name: &String| {
            let number = name.strip_prefix(prefix);
            number.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
        };
        names.filter(is_device).count()
    };
    let count = devices("/dev/dri", "renderD").max(devices("/dev", "nvidia"));
    count.try_into().unwrap_or(u32::MAX)
}

pub(super) fn host_name() -> Result<String, Failure> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_owned();
    check_machine_name(&name)
        .map_err(|why| Failure::invalid(why).hint("name this machine with `--name NAME`"))?;
    Ok(name)
}
