//! The dataflows of this host, from the names of the sockets of their keepers.

use super::environment::named;
use super::error::ConnectionError;
use nervure_protocol::address::KeeperAddress;
use nervure_protocol::domain::Domain;
use nervure_protocol::nearest;
use nervure_shm::Seqpacket;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Readings of `/proc/net/unix` for a list. One reading can leave a socket out: the kernel hands the
/// table out a page at a time, and continues at a position that moves when another socket closes.
/// While three processes opened and closed sockets, 216 of 80,000 single readings lacked one of 20
/// sockets, and of the pairs none.
const READINGS: usize = 2;

/// The dataflows of this user, or for root of all users, in this process's domain, sorted by name.
/// Dataflows in other network namespaces (containers) are not visible.
///
/// # Errors
/// [`ConnectionError::List`] if /proc cannot be read, [`ConnectionError::Domain`].
pub fn dataflows() -> Result<Vec<KeeperAddress>, ConnectionError> {
    let (mut ours, _) = ours_and_others()?;
    ours.retain(is_of_its_user);
    Ok(ours)
}

/// The dataflows of other users in this process's domain, according to the names of their sockets,
/// which any user can forge. Empty for root.
///
/// # Errors
/// [`ConnectionError::List`] if /proc cannot be read, [`ConnectionError::Domain`].
pub fn dataflows_of_others() -> Result<Vec<KeeperAddress>, ConnectionError> {
    let (_, others) = ours_and_others()?;
    Ok(others)
}

/// Whether the socket belongs to the user in its name. Any user can take any name; the kernel knows
/// the owner.
fn is_of_its_user(address: &KeeperAddress) -> bool {
    match Seqpacket::connect(&address.to_string()) {
        Ok(socket) => socket.peer().is_ok_and(|peer| peer.uid == address.uid),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => false,
        // No connection is accepted, so that the owner of the process decides.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let process = std::fs::metadata(format!("/proc/{}", address.keeper));
            process.is_ok_and(|process| process.uid() == address.uid)
        }
        // A lack of this process hides no dataflow.
        Err(_) => true,
    }
}

fn ours_and_others() -> Result<(Vec<KeeperAddress>, Vec<KeeperAddress>), ConnectionError> {
    let domain = Domain::of_environment()?;
    let mut found = BTreeSet::new();
    for _ in 0..READINGS {
        let bytes = std::fs::read("/proc/net/unix").map_err(ConnectionError::List)?;
        found.extend(listed(&String::from_utf8_lossy(&bytes)));
    }
    found.retain(|address| address.domain == domain);
    let own = rustix::process::geteuid();
    Ok(found
        .into_iter()
        .partition(|address| own.is_root() || address.uid == own.as_raw()))
}

/// Finds a dataflow by its name or the process ID of its keeper. Without a name, finds the dataflow
/// that `NERVURE_DATAFLOW` in the environment names, or the only running one.
///
/// # Errors
/// [`ConnectionError::NoneRuns`], [`ConnectionError::NotRunning`] or [`ConnectionError::Several`];
/// the last two list the dataflows that run.
pub fn find(name: Option<&str>) -> Result<KeeperAddress, ConnectionError> {
    choose(
        &dataflows()?,
        named(name).as_deref(),
        &Domain::of_environment()?,
    )
}

/// The keepers that listen, from the text of /proc/net/unix.
///
/// A line is `<address>: <references> <protocol> <flags> <type> <state> <inode> [@name]`. A socket
/// that listens has bit 16 of the flags (`__SO_ACCEPTCON`), and `@` stands for the zero byte of the
/// abstract namespace.
fn listed(text: &str) -> Vec<KeeperAddress> {
    const ACCEPTS: u32 = 1 << 16;
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let name = fields.nth(3)?.strip_prefix('@')?;
        (flags & ACCEPTS != 0).then(|| KeeperAddress::parse(name))?
    };
    text.lines().filter_map(address).collect()
}

fn choose(
    found: &[KeeperAddress],
    name: Option<&str>,
    domain: &Domain,
) -> Result<KeeperAddress, ConnectionError> {
    let is_meant = |one: &&KeeperAddress| {
        name.is_none_or(|name| one.dataflow == name || one.keeper.to_string() == name)
    };
    let mut chosen = found.iter().filter(is_meant);
    match (chosen.next(), chosen.next()) {
        (Some(only), None) => Ok(only.clone()),
        (Some(_), Some(_)) => Err(ConnectionError::Several {
            running: names(found),
        }),
        (None, _) if found.is_empty() => Err(ConnectionError::NoneRuns(domain.clone())),
        (None, _) => {
            let name = name.unwrap_or_default();
            let near = nearest(name, found.iter().map(|one| one.dataflow.as_str()));
            Err(ConnectionError::NotRunning {
                name: name.to_owned(),
                running: names(found),
                nearest: near.map(str::to_owned),
            })
        }
    }
}

/// The dataflows' names in one line: `drive`, or `drive (process 4711)` if several share the name.
fn names(found: &[KeeperAddress]) -> String {
    let name = |one: &KeeperAddress| {
        let is_only = found
            .iter()
            .filter(|other| other.dataflow == one.dataflow)
            .count()
            == 1;
        if is_only {
            one.dataflow.clone()
        } else {
            format!("{} (process {})", one.dataflow, one.keeper)
        }
    };
    found.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    const SOCKETS: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 20501 @nervure/1000/drive/4711
0000000000000000: 00000003 00000000 00000000 0005 03 20502 @nervure/1000/drive/4711
0000000000000000: 00000002 00000000 00010000 0001 01 20503 /run/nervure/1000/x/1
0000000000000000: 00000002 00000000 00010000 0005 01 20504 @nervure/1000/drive/4712
0000000000000000: 00000002 00000000 00010000 0005 01 20505 @nervure/0/arm/99
0000000000000000: 00000002 00000000 00000000 0002 01 20506
";

    fn address(dataflow: &str, keeper: u32, uid: u32) -> KeeperAddress {
        KeeperAddress {
            domain: Domain::default(),
            dataflow: dataflow.to_owned(),
            keeper,
            uid,
        }
    }

    #[test]
    fn only_sockets_of_keepers_that_listen_are_listed() {
        let expected = [
            address("drive", 4711, 1000),
            address("drive", 4712, 1000),
            address("arm", 99, 0),
        ];
        assert_eq!(listed(SOCKETS), expected);
    }

    #[test]
    fn a_dataflow_is_listed_while_other_sockets_open_and_close() {
        const ROUNDS: usize = 3_000;
        let address = address(
            "listed-always",
            std::process::id(),
            rustix::process::geteuid().as_raw(),
        );
        let _listener = nervure_shm::Listener::bind(&address.to_string()).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        let bind = |at| {
                            let name = format!("listing-test/{}/{thread}/{at}", std::process::id());
                            nervure_shm::Listener::bind(&name).unwrap()
                        };
                        drop((0..40).map(bind).collect::<Vec<_>>());
                    }
                });
            }
            let missed = (0..ROUNDS).filter(|_| !dataflows().unwrap().contains(&address));
            let missed = missed.count();
            is_over.store(true, Relaxed);
            assert_eq!(missed, 0, "of {ROUNDS} lists");
        });
    }

    #[test]
    fn a_name_with_the_uid_of_another_user_is_no_dataflow_of_that_user() {
        let own = rustix::process::geteuid().as_raw();
        let keeper = std::process::id();
        for (uid, is_true) in [(own, true), (own + 1, false)] {
            let address = address("forged", keeper, uid);
            let _listener = nervure_shm::Listener::bind(&address.to_string()).unwrap();
            assert_eq!(is_of_its_user(&address), is_true, "{uid}");
            // Now no connection is accepted, and the owner of the process decides.
            let mut waiting = Vec::new();
            while let Ok(socket) = Seqpacket::connect(&address.to_string()) {
                waiting.push(socket);
            }
            assert_eq!(is_of_its_user(&address), is_true, "{uid}, full");
        }
        assert!(!is_of_its_user(&address("gone", keeper, own)));
    }

    #[test]
    fn only_one_of_several_dataflows_needs_a_name() {
        let found = listed(SOCKETS);
        let text = |name| {
            choose(&found, name, &Domain::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            choose(&found, Some("arm"), &Domain::default())
                .unwrap()
                .keeper,
            99
        );
        assert_eq!(
            choose(&found, Some("4712"), &Domain::default())
                .unwrap()
                .keeper,
            4712
        );
        let several = "several dataflows run: drive (process 4711), drive (process 4712), arm";
        assert_eq!(
            (text(None), text(Some("drive"))),
            (several.to_owned(), several.to_owned())
        );
        assert!(
            text(Some("leg")).starts_with("no dataflow `leg` runs; these do: drive (process 4711)")
        );
        let hint = choose(&found, Some("drvie"), &Domain::default())
            .unwrap_err()
            .hint();
        assert_eq!(hint.as_deref(), Some("did you mean `drive`?"));
        assert!(matches!(
            choose(&[], Some("leg"), &Domain::default()),
            Err(ConnectionError::NoneRuns(_))
        ));
        assert_eq!(
            choose(&found[..1], None, &Domain::default())
                .unwrap()
                .keeper,
            4711
        );
    }
}
