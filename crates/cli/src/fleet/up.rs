//! `nervure up`: the coordinator of a fleet, and the daemon of its machine.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use nervure_coordinator::{
    Address, Coordinator, Endpoint, Invitation, MACHINES, Machine, Role, Standing, Terms,
};
use nervure_daemon::{
    PAIRING,
    folder::{Folder, Pairing, reachable},
    state::parse,
};
use nervure_fleet::connection::{client, folder};
use nervure_inspect::{daemon, threads};
#[cfg(feature = "etcd")]
use nervure_store::StoreError;
use nervure_store::{OpenError, Store};

use super::{
    arguments::{StoreAddress, UpArguments},
    daemon::{default_port, host_name, load_key, pairing, serve},
};
use crate::{failure::Failure, output};

/// Lifetime of an invitation.
const INVITATION_LIFETIME: Duration = Duration::from_secs(3600);

/// Interval at which a coordinator looks at the addresses of its machine.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);

/// Starts a fleet on this machine: its coordinator, and the daemon.
pub fn up(arguments: &UpArguments) -> Result<ExitCode, Failure> {
    if let Some(process) = daemon::process()? {
        let text = format!("the daemon of this machine runs already: process {process}");
        return Err(Failure::invalid(text).hint("`nervure down` ends it; its dataflows go on"));
    }
    let folder = folder()?;
    let known: Option<Pairing> = folder
        .read(PAIRING)
        .map_err(nervure_inspect::Error::Folder)?;
    let key = load_key(&folder)?;
    let is_own = |known: &&Pairing| known.coordinator == key.public().to_string();
    let listens = listens(arguments.address.as_ref(), known.as_ref().filter(is_own))?;
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
        .map_err(nervure_inspect::Error::Folder)?;
    let store = open_store(&folder, &data, stored)?;
    if let Some(known) = joined {
        check_is_same_fleet(known, &*store)?;
    }
    if let Some(known) = known
        .as_ref()
        .filter(is_own)
        .filter(|_| !arguments.new_fleet)
    {
        check_is_not_emptied(known, &*store, &data)?;
    }
    let (changed, machines) = mpsc::channel::<Machine>();
    let own = key.public();
    let coordinator = Coordinator::start(nervure_coordinator::Config {
        address: listens,
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
            .hint("`--address HOST:PORT` chooses another address of this machine")
    })?;
    let listens = coordinator.address();
    let at = Endpoint {
        address: reachable(listens),
        key: own,
    };
    let client = client(&[at], own, &key)?;
    client.join("", &name)?;
    let pairing = pairing(
        &folder,
        name,
        vec![listens.into()],
        own.to_string(),
        &arguments.label,
    )?;
    threads::spawn(move || {
        let mut invitation = invite(&coordinator);
        loop {
            let machine = match machines.recv_timeout(ANNOUNCE_INTERVAL) {
                Ok(machine) => machine,
                Err(RecvTimeoutError::Timeout) => {
                    // A store that cannot be used now gets them with the next look.
                    let _ = coordinator.announce();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
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
    let address = Some(listens.ip()).filter(|ip| !ip.is_unspecified());
    serve(folder, pairing, address)
}

/// The address to listen on: the given one, the previous one, or all addresses of this machine. An address that
/// this machine no longer has is ignored.
fn listens(named: Option<&Address>, known: Option<&Pairing>) -> Result<SocketAddr, Failure> {
    let all = |port| SocketAddr::from(([0; 4], port));
    if let Some(named) = named {
        let found = named
            .resolve()
            .ok()
            .and_then(|found| found.into_iter().next());
        return found
            .ok_or_else(|| Failure::invalid(format!("the address {named} cannot be found")));
    }
    match known.and_then(|known| known.address.ip()) {
        None => Ok(all(default_port()?)),
        Some(known) if UdpSocket::bind((known.ip(), 0)).is_ok() => Ok(known),
        Some(known) => {
            note!(
                "this machine has no address {} any more; the coordinator listens on all that it has",
                known.ip()
            );
            Ok(all(known.port()))
        }
    }
}

/// Checks that the store of a fleet that was made here has its machines: a store that was lost must not come up
/// as an empty fleet.
fn check_is_not_emptied(known: &Pairing, store: &dyn Store, data: &Path) -> Result<(), Failure> {
    let entries = store.list(MACHINES)?.entries;
    let mut machines = entries
        .iter()
        .filter_map(|it| parse::<Machine>(&it.key, &it.value).ok());
    if machines.any(|machine| machine.key == known.coordinator) {
        return Ok(());
    }
    let text = format!(
        "the state of the fleet is gone: this machine is its coordinator as `{}`, and the store in {} is empty",
        known.name,
        data.display()
    );
    Err(Failure::invalid(text).hint(
        "put a backup of this folder there; or begin an empty fleet with `nervure up --new-fleet`, and invite its \
         machines again",
    ))
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

/// Checks that a store belongs to the fleet that this machine has joined.
fn check_is_same_fleet(known: &Pairing, store: &dyn Store) -> Result<(), Failure> {
    let entries = store.list(MACHINES)?.entries;
    let machines = entries.iter();
    let mut machines = machines.filter_map(|it| parse::<Machine>(&it.key, &it.value).ok());
    match machines.any(|it| it.key == known.coordinator && it.is_coordinator()) {
        true => Ok(()),
        false => Err(is_of_another_fleet(known)),
    }
}

/// Place of the fleet's state: the given etcd, the previous one, or a file.
fn store_of(
    folder: &Folder,
    named: Option<&StoreAddress>,
) -> Result<Option<StoreAddress>, Failure> {
    match named {
        Some(named) => Ok(Some(named.clone())),
        None => Ok(folder.read(ETCD).map_err(nervure_inspect::Error::Folder)?),
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
        .map_err(nervure_inspect::Error::Folder)?;
    Ok(store)
}

fn open_failure(error: OpenError) -> Failure {
    let failure = Failure::internal(error.to_string());
    match error {
        OpenError::InUse { .. } => failure.hint("does `nervure up` run already?"),
        OpenError::Damaged { path, .. } => failure.hint(format!(
            "restore {0} from a backup of this folder; or move it away: `nervure up --new-fleet` begins a fleet without machines then, and each joins with a new invitation",
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
