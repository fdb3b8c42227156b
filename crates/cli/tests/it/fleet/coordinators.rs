//! A fleet whose state is in etcd, with one coordinator and with two.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    sync::atomic::{AtomicU16, Ordering},
};

use super::*;

#[test]
fn the_state_of_a_fleet_in_etcd_outlives_the_folder_of_the_coordinator() {
    let Some(etcd) = Etcd::start(1) else { return };
    let mut fleet = fleet_in(&etcd);
    start_counting(&fleet, 0);
    // The coordinator is killed, and its disk is lost but for its key. The next one needs no option.
    fleet.daemons[0].as_mut().unwrap().kill();
    fs::remove_dir_all(fleet.state(0).join("coordinator")).unwrap();
    up_again(&mut fleet, 0);
    await_reachable(&fleet, 0, &["laptop", "robot"]);
    await_samples(&fleet, 0);
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn one_of_three_etcds_and_one_of_two_coordinators_are_killed_and_the_fleet_goes_on() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let mut fleet = fleet_in(&etcd);
    up(&mut fleet, 2, &etcd.store(1));
    await_reachable(&fleet, 0, &["laptop", "robot", "r2"]);
    await_reachable(&fleet, 2, &["laptop", "robot", "r2"]);
    start_counting(&fleet, 2);
    let processes = fleet.processes();

    // The first coordinator's member of etcd ends.
    etcd.kill(0);
    for at in [0, 2] {
        await_reachable(&fleet, at, &["laptop", "robot", "r2"]);
        await_write(&fleet, at);
    }
    await_samples(&fleet, 2);
    assert_eq!(fleet.processes(), processes);

    // The coordinator that the robot has paired with, and whose clock is the fleet's, ends.
    fleet.daemons[0].as_mut().unwrap().kill();
    await_reachable(&fleet, 2, &["robot", "r2"]);
    let file = fleet.file(&numbers("source 100 1 1"));
    let second = ["start", file.to_str().unwrap(), "--name", "second"];
    fleet.output(2, &[&second[..], &["--bind", "edge=r2"]].concat());
    await_samples(&fleet, 2);
    // A machine that has joined by the ended coordinator starts again, and connects to the other one.
    fleet.daemons[1].as_mut().unwrap().kill();
    fleet.await_that("the loss of a machine is seen", |fleet| {
        !is_reachable(fleet, 2, "robot") && !is_reachable(fleet, 2, "laptop")
    });
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    await_reachable(&fleet, 2, &["robot", "r2"]);
    await_samples(&fleet, 2);
    fleet.output(2, &["stop", "-d", "second"]);
    fleet.await_that("the other dataflow alone is left", |fleet| {
        fleet.processes() == processes
    });

    // The first coordinator returns, and the other one is killed.
    up_again(&mut fleet, 0);
    await_reachable(&fleet, 0, &["laptop", "robot", "r2"]);
    fleet.daemons[2].as_mut().unwrap().kill();
    fleet.await_that("the loss of a machine is seen", |fleet| {
        !is_reachable(fleet, 0, "r2")
    });
    await_reachable(&fleet, 0, &["laptop", "robot"]);
    let third = ["start", file.to_str().unwrap(), "--name", "third"];
    fleet.output(0, &[&third[..], &["--bind", "edge=laptop"]].concat());
    fleet.output(0, &["stop", "-d", "third"]);
    fleet.await_that("the other dataflow alone is left", |fleet| {
        fleet.processes() == processes
    });
    up_again(&mut fleet, 2);
    await_reachable(&fleet, 0, &["laptop", "robot", "r2"]);
    await_samples(&fleet, 2);
    assert_eq!(fleet.processes(), processes);
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_machine_that_has_joined_becomes_a_coordinator_of_its_own_fleet_alone() {
    let Some(etcd) = Etcd::start(1) else { return };
    let Some(other) = Etcd::start(1) else { return };
    let mut fleet = fleet_in(&etcd);
    fleet.join(2, "robot");
    fleet.daemons[2].as_mut().unwrap().kill();
    for arguments in [&["up"][..], &["up", "--store", &other.store(0)]] {
        let (code, text) = refused(&fleet, 2, arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(
            text.contains("this machine belongs to the fleet of"),
            "{text}"
        );
    }
    up(&mut fleet, 2, &etcd.store(0));
    await_reachable(&fleet, 2, &["laptop", "robot", "r2"]);
    assert!(is_listed(&fleet, "r2", "operator", "reachable"));
    // It can invite as well: a machine that joins through it is reachable for the other coordinator.
    let invitation = fleet.output(2, &["machine", "invite"]);
    let address = |at: usize| {
        let machine = fs::read_to_string(fleet.state(at).join("machine.json")).unwrap();
        let machine: Value = serde_json::from_str(&machine).unwrap();
        machine["address"].as_str().unwrap().to_owned()
    };
    assert!(invitation.contains(&address(2)), "{invitation}");
    let words: Vec<&str> = invitation.split_ascii_whitespace().skip(1).collect();
    let joining = fleet.command(3, &[words.as_slice(), &["--name", "r3"]].concat());
    fleet.daemons.push(Some(Daemon::start(joining)));
    fleet.daemon(3).line("r3 is ready");
    await_reachable(&fleet, 0, &["r3"]);
    // A revoked coordinator ceases to be one, and does not admit itself.
    fleet.daemons[2].as_mut().unwrap().kill();
    fleet.output(0, &["machine", "revoke", "r2"]);
    let (code, text) = refused(&fleet, 2, &["up"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("`r2` was revoked"), "{text}");
    await_reachable(&fleet, 0, &["laptop", "robot", "r3"]);
    fleet.check_nothing_left();
}

/// A coordinator on the laptop, and the robot.
fn fleet_in(etcd: &Etcd) -> Fleet {
    let mut fleet = Fleet::unpaired(None, None);
    let line = up(&mut fleet, 0, &etcd.store(0));
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let robot = fleet.command(1, &[words.as_slice(), &["--name", "robot"]].concat());
    fleet.daemons.push(Some(Daemon::start(robot)));
    await_reachable(&fleet, 0, &["laptop", "robot"]);
    fleet
}

/// Starts a machine with a coordinator, and returns its invitation.
fn up(fleet: &mut Fleet, at: usize, store: &str) -> String {
    let address = SocketAddr::new(own_loopback(), free_port()).to_string();
    let arguments = ["--name", &name(at), "--address", &address, "--store", store];
    let daemon = Daemon::start(fleet.command(at, &[&["up"], &arguments[..]].concat()));
    let line = daemon.line("nervure join");
    fleet
        .daemons
        .resize_with(fleet.daemons.len().max(at + 1), || None);
    fleet.daemons[at] = Some(daemon);
    line
}

/// Starts it again, as it was.
fn up_again(fleet: &mut Fleet, at: usize) {
    fleet.daemons[at] = Some(Daemon::start(fleet.command(at, &["up"])));
    fleet.daemon(at).line("is ready");
}

/// Numbers without an end from the robot to a machine, which prints them.
fn start_counting(fleet: &Fleet, to: usize) {
    let file = fleet.file(&numbers("source 1000000 5 100"));
    let bind = format!("edge={}", name(to));
    fleet.output(to, &["start", file.to_str().unwrap(), "--bind", &bind]);
    await_samples(fleet, to);
}

fn await_samples(fleet: &Fleet, at: usize) {
    let before = fleet.printed(at, "sink").len();
    fleet.await_that("samples arrive", |fleet| {
        fleet.printed(at, "sink").len() > before + 20
    });
}

/// Whether a machine is shown as reachable on another one. A command may fail while etcd has no leader.
fn is_reachable(fleet: &Fleet, at: usize, machine: &str) -> bool {
    let mut list = fleet.command(at, &["machine", "list", "--json"]);
    let list = fleet.run(&mut list);
    let machines: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
    let mut machines = machines["machines"].as_array().into_iter().flatten();
    let listed = machines.find(|listed| listed["name"] == machine);
    listed.is_some_and(|it| it["reachable"] == true && !it["actual"].is_null())
}

fn await_reachable(fleet: &Fleet, at: usize, machines: &[&str]) {
    fleet.await_that(&format!("{machines:?} can be reached"), |fleet| {
        machines
            .iter()
            .all(|machine| is_reachable(fleet, at, machine))
    });
}

/// A write succeeds. One that was under way when the leader of etcd was killed fails.
fn await_write(fleet: &Fleet, at: usize) {
    fleet.await_that("an invitation is made", |fleet| {
        let mut invite = fleet.command(at, &["machine", "invite"]);
        fleet.run(&mut invite).status.success()
    });
}

/// Ports on the loopback address of this process.
static PORT: AtomicU16 = AtomicU16::new(2379);

fn free_port() -> u16 {
    PORT.fetch_add(1, Ordering::Relaxed)
}

/// A loopback address of this process alone: a free port of the common one may be taken by an outgoing
/// connection before a process listens on it.
fn own_loopback() -> IpAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, high | 0x80, middle, low])
}

/// Members of an etcd, which end with the test.
struct Etcd {
    members: Vec<Child>,
    addresses: Vec<SocketAddr>,
    _folder: TempDir,
}

impl Etcd {
    /// `None` where none is installed, which is printed.
    fn start(members: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let free = |_| SocketAddr::new(own_loopback(), free_port());
        let addresses: Vec<SocketAddr> = (0..members).map(free).collect();
        let peers: Vec<_> = (0..members)
            .map(|at| format!("http://{}", free(at)))
            .collect();
        let cluster: Vec<_> = (0..members)
            .map(|at| format!("m{at}={}", peers[at]))
            .collect();
        let start = |at: usize| {
            let (name, clients) = (format!("m{at}"), format!("http://{}", addresses[at]));
            Command::new("etcd")
                .args(["--name", &name, "--initial-cluster", &cluster.join(",")])
                .arg("--data-dir")
                .arg(folder.path().join(&name))
                .args(["--listen-client-urls", &clients])
                .args(["--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers[at]])
                .args(["--initial-advertise-peer-urls", &peers[at]])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        let started: Result<Vec<_>, _> = (0..members).map(start).collect();
        let Ok(members) = started else {
            eprintln!("SKIPPED: no etcd is installed (apt install etcd-server)");
            return None;
        };
        let etcd = Self {
            members,
            addresses,
            _folder: folder,
        };
        let until = Instant::now() + WAIT_LIMIT;
        while !etcd
            .addresses
            .iter()
            .all(|at| TcpStream::connect(at).is_ok())
        {
            assert!(Instant::now() < until, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(etcd)
    }

    /// The option of a coordinator that connects to this member first.
    fn store(&self, first: usize) -> String {
        let mut addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.rotate_left(first);
        format!("etcd://{}", addresses.join(","))
    }

    fn kill(&mut self, member: usize) {
        let member = &mut self.members[member];
        let _ = (member.kill(), member.wait());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }
}
