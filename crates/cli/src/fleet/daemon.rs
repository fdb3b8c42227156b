//! `nervure up` and `nervure join`: the daemon of this machine, with the coordinator or without.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    process::ExitCode,
    sync::{Arc, mpsc},
    time::Duration,
};

use nervure_coordinator::{
    CallError, Client, Coordinator, Invitation, Joining, MACHINES, Machine, Role, Standing, Terms,
    check_machine_name,
};
use nervure_daemon::{
    Config, DaemonError, Host, PAIRING,
    folder::{Folder, Pairing},
    state::{Resources, parse},
};
use nervure_identity::KeyPair;
use nervure_protocol::{
    daemon_to_daemon::{LogFilter, Usage},
    domain::Domain,
    report::LogRecord,
};
#[cfg(feature = "etcd")]
use nervure_store::StoreError;
use nervure_store::{OpenError, Store};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    arguments::{InvitationArgument, JoinArguments, StoreAddress, UpArguments},
    connection::{call_failure, daemon_process, folder, folder_failure, store_failure},
};
use crate::{
    failure::Failure,
    inspect::{logs, processes},
    output,
    run::memory,
    threads,
};

/// Port of the coordinator, and of links where it is free.
const PORT: u16 = 7700;

/// Environment variable with the invitation of a machine that has not joined before.
const INVITATION_VARIABLE: &str = "NERVURE_INVITATION";

/// How long an invitation is valid.
const INVITATION_LIFETIME: Duration = Duration::from_secs(3600);

/// Interval at which a machine asks whether it was approved.
const APPROVAL_POLL: Duration = Duration::from_secs(2);

/// Starts a fleet on this machine: its coordinator, and the daemon.
pub fn up(arguments: &UpArguments) -> Result<ExitCode, Failure> {
    if let Some(process) = daemon_process()? {
        let text = format!("the daemon of this machine runs already: process {process}");
        return Err(Failure::invalid(text).hint("`nervure down` ends it; its dataflows go on"));
    }
    let folder = folder()?;
    let known: Option<Pairing> = folder
        .read(PAIRING)
        .map_err(|error| folder_failure(&error))?;
    let key = load_key(&folder)?;
    let is_own = |known: &&Pairing| known.coordinator == key.public().to_string();
    let address = match (arguments.address, known.as_ref().filter(is_own)) {
        (Some(address), _) => address,
        (None, Some(known)) => known.address,
        (None, None) => SocketAddr::new(own_address()?, default_port()?),
    };
    let name = match (&arguments.name, &known) {
        (Some(name), _) => name.clone(),
        (None, Some(known)) => known.name.clone(),
        (None, None) => host_name()?,
    };
    let joined = known.as_ref().filter(|known| !is_own(known));
    let stored = store_of(&folder, arguments.store.as_ref())?;
    if let (Some(known), None) = (joined, &stored) {
        return Err(is_of_another_fleet(known));
    }
    let data = folder
        .coordinator()
        .map_err(|error| folder_failure(&error))?;
    let store = open_store(&folder, &data, stored)?;
    if let Some(known) = joined {
        check_is_same_fleet(known, &*store)?;
    }
    let (changed, machines) = mpsc::channel::<Machine>();
    let own = key.public();
    let coordinator = Coordinator::start(nervure_coordinator::Config {
        address,
        key: load_key(&folder)?,
        store,
        bundles: data.join("bundles"),
        on_change: Box::new(move |machine| drop(changed.send(machine))),
        on_copy: Box::new(|machine, older, younger| {
            note!(
                "warning: two daemons have the key of {}, at {older} and {younger}: the state folder of one was copied. The younger, at {younger}, is refused; remove that folder there, and let it join with a new invitation",
                machine.name
            );
        }),
    })
    .map_err(|error| {
        Failure::internal(error.to_string())
            .hint("`--address IP:PORT` chooses another address of this machine")
    })?;
    let address = coordinator.address();
    let client = Client::new(address, own, &key)
        .map_err(|error| Failure::internal("cannot start a client").because(error))?;
    client.join("", &name).map_err(call_failure)?;
    let pairing = pairing(&folder, name, address, own.to_string(), &arguments.label)?;
    threads::spawn(move || {
        let mut invitation = invite(&coordinator);
        for machine in machines {
            if machine.key == own.to_string() {
                continue;
            }
            let Machine { name, role, .. } = &machine;
            match machine.standing {
                Standing::Paired => note!("{name} has joined from {} as {role}", machine.address),
                Standing::Waiting => {
                    note!("{name} waits for approval: `nervure machine approve {name}`")
                }
                Standing::Revoked => note!("{name} was revoked"),
            }
            let is_open = |it: &Invitation| coordinator.is_open(it).unwrap_or(true);
            if !invitation.as_ref().is_some_and(is_open) {
                invitation = invite(&coordinator);
            }
        }
    })?;
    serve(folder, pairing, Some(address.ip()))
}

/// File with the addresses of etcd, if the state of the fleet is there.
const ETCD: &str = "etcd.json";

fn is_of_another_fleet(known: &Pairing) -> Failure {
    let Pairing { address, name, .. } = known;
    Failure::invalid(format!(
        "this machine belongs to the fleet of {address}, as `{name}`"
    ))
    .hint("`nervure join` starts its daemon; `--store etcd://..` makes it one more coordinator of that fleet, if its state is there")
}

/// Checks that a store is that of the fleet that this machine has joined.
fn check_is_same_fleet(known: &Pairing, store: &dyn Store) -> Result<(), Failure> {
    let entries = store.list(MACHINES).map_err(store_failure)?.entries;
    let machines = entries.iter();
    let mut machines = machines.filter_map(|it| parse::<Machine>(&it.key, &it.value).ok());
    match machines.any(|it| it.key == known.coordinator && it.is_coordinator()) {
        true => Ok(()),
        false => Err(is_of_another_fleet(known)),
    }
}

/// Where the state of the fleet is: in this etcd, in that of the last time, or in a file.
fn store_of(
    folder: &Folder,
    named: Option<&StoreAddress>,
) -> Result<Option<StoreAddress>, Failure> {
    match named {
        Some(named) => Ok(Some(named.clone())),
        None => folder.read(ETCD).map_err(|error| folder_failure(&error)),
    }
}

/// Opens the store of the fleet, and remembers where it is.
fn open_store(
    folder: &Folder,
    data: &Path,
    address: Option<StoreAddress>,
) -> Result<Arc<dyn Store>, Failure> {
    let Some(address) = address else {
        let store = nervure_store::open(&data.join("store.redb"));
        return Ok(Arc::new(store.map_err(open_failure)?));
    };
    let store = open_etcd(&address)?;
    folder
        .write(ETCD, &address)
        .map_err(|error| folder_failure(&error))?;
    Ok(store)
}

fn open_failure(error: OpenError) -> Failure {
    let failure = Failure::internal(error.to_string());
    match error {
        OpenError::InUse { .. } => failure.hint("does `nervure up` run already?"),
        OpenError::Damaged { path, .. } => failure.hint(format!(
            "restore {0} from a backup of this folder; or move it away: `nervure up` begins a fleet without machines then, and each joins with a new invitation",
            path.display()
        )),
        OpenError::File { .. } => failure,
    }
}

#[cfg(feature = "etcd")]
fn open_etcd(StoreAddress(members): &StoreAddress) -> Result<Arc<dyn Store>, Failure> {
    let store = nervure_store::etcd(members, "nervure/").map_err(|error| match error {
        StoreError::Refused(why) => Failure::invalid(why),
        error => {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            let hint = format!("does etcd run at {}?", members.join(" or "));
            Failure::internal(error.to_string()).hint(hint)
        }
    })?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "etcd"))]
fn open_etcd(_: &StoreAddress) -> Result<Arc<dyn Store>, Failure> {
    Err(Failure::invalid("this `nervure` was built without etcd")
        .hint("build it with `cargo build -p nervure-cli --features etcd`"))
}

/// Pairs this machine with a fleet, and runs its daemon.
pub fn join(arguments: &JoinArguments) -> Result<ExitCode, Failure> {
    let folder = folder()?;
    let invitation = arguments.invitation.as_ref().map(InvitationArgument::read);
    let pairing = pair(&folder, arguments, invitation.transpose()?.as_ref())?;
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
        .map_err(|error| folder_failure(&error))?;
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
    let client = Client::new(invitation.address, invitation.coordinator, &key)
        .map_err(|error| Failure::internal("cannot start a client").because(error))?;
    let paired = await_approval(&client, invitation, &name)?;
    if arguments
        .name
        .as_ref()
        .is_some_and(|asked| *asked != paired)
    {
        note!("this machine is `{paired}` in the fleet");
    }
    pairing(
        folder,
        paired,
        invitation.address,
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
    if !arguments.label.is_empty() {
        let (name, coordinator) = (known.name, known.coordinator);
        known = pairing(folder, name, known.address, coordinator, &arguments.label)?;
    }
    Ok(known)
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
            Err(error) => return Err(call_failure(error)),
        }
        std::thread::sleep(APPROVAL_POLL);
    }
}

/// Prints the command line for one more robot.
fn invite(coordinator: &Coordinator) -> Option<Invitation> {
    match coordinator.invite(Terms::once(Role::Robot, INVITATION_LIFETIME)) {
        Ok(invitation) => {
            if let Err(failure) = output::write_secret(&format!("nervure join {invitation}\n")) {
                note!("warning: no invitation is shown: {failure}");
            }
            Some(invitation)
        }
        Err(error) => {
            note!("warning: no invitation can be made: {error}");
            None
        }
    }
}

fn load_key(folder: &Folder) -> Result<KeyPair, Failure> {
    KeyPair::load_or_generate(&folder.key()).map_err(|error| Failure::internal(error.to_string()))
}

/// The port of a fleet without another: any free one if it is not in the default domain, which later
/// starts keep.
fn default_port() -> Result<u16, Failure> {
    Ok(match Domain::of_environment()?.name() {
        Some(_) => 0,
        None => PORT,
    })
}

/// Writes the pairing, with the port of the link from before, and the labels from before if none are given.
fn pairing(
    folder: &Folder,
    name: String,
    address: SocketAddr,
    coordinator: String,
    labels: &[(String, String)],
) -> Result<Pairing, Failure> {
    let known: Option<Pairing> = folder
        .read(PAIRING)
        .map_err(|error| folder_failure(&error))?;
    let link_port = match &known {
        Some(known) => known.link_port,
        None => default_port()?,
    };
    let labels = match labels {
        [] => known.map(|known| known.labels).unwrap_or_default(),
        labels => labels.iter().cloned().collect(),
    };
    let pairing = Pairing {
        name,
        address,
        coordinator,
        link_port,
        labels,
    };
    folder
        .write(PAIRING, &pairing)
        .map_err(|error| folder_failure(&error))?;
    Ok(pairing)
}

/// Runs the daemon until a signal. Its dataflows go on, and the next daemon finds them.
fn serve(folder: Folder, pairing: Pairing, address: Option<IpAddr>) -> Result<ExitCode, Failure> {
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

/// What the daemon needs of this command.
struct Command;

impl Host for Command {
    fn resources(&self) -> Resources {
        Resources {
            cpus: std::thread::available_parallelism()
                .map_or(0, |cpus| cpus.get().try_into().unwrap_or(u32::MAX)),
            memory: memory::total().unwrap_or(0),
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

/// The address of this machine towards the default route. Nothing is sent.
fn own_address() -> Result<IpAddr, Failure> {
    let find = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        // An address for documentation (RFC 5737), which no network has.
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    };
    find().map_err(|error| {
        Failure::internal("the address of this machine is not known: it has no default route")
            .because(error)
            .hint("name it: `nervure up --address 192.168.1.10:7700`")
    })
}

fn host_name() -> Result<String, Failure> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_owned();
    check_machine_name(&name)
        .map_err(|why| Failure::invalid(why).hint("name this machine with `--name NAME`"))?;
    Ok(name)
}
