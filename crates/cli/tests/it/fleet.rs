//! A fleet of two machines: on loopback with two folders of state, and in two network namespaces.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use nervure_linkemu::namespaces::{Namespaces, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit of a wait; tests need only a small part of it.
const PATIENCE: Duration = Duration::from_secs(90);

/// Two machines, each with its folders.
struct Fleet {
    /// The name of the dataflow. Other fleets of this host may have one of the same name.
    dataflow: String,
    namespaces: Option<Namespaces>,
    folder: TempDir,
    daemons: [Option<Daemon>; 2],
}

struct Daemon {
    child: Child,
    /// Lines of stdout and stderr.
    lines: Receiver<String>,
}

impl Daemon {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Self { child, lines }
    }

    /// Waits for a line that contains this text.
    fn line(&self, text: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {text:?}, but {seen:#?}");
    }

    fn kill(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

const NAMES: [&str; 2] = ["laptop", "robot"];

impl Fleet {
    /// Pairs both machines, and waits until their daemons have reported.
    fn new(namespaces: Option<Namespaces>) -> Self {
        Self::with_robot_as("robot", namespaces)
    }

    /// As [`Fleet::new`], with a role for the second machine.
    fn with_robot_as(role: &str, namespaces: Option<Namespaces>) -> Self {
        let mut fleet = Self {
            dataflow: "two".to_owned(),
            namespaces,
            folder: tempfile::tempdir().unwrap(),
            daemons: [None, None],
        };
        let address = match fleet.namespaces {
            Some(_) => "10.77.0.1:7700",
            None => "127.0.0.1:0",
        };
        let laptop =
            Daemon::start(fleet.command(0, &["up", "--name", "laptop", "--address", address]));
        laptop.line("nervure join");
        fleet.daemons[0] = Some(laptop);
        let line = fleet.output(0, &["machine", "invite", "--role", role]);
        let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
        let robot = fleet.command(1, &[words.as_slice(), &["--name", "robot"]].concat());
        fleet.daemons[1] = Some(Daemon::start(robot));
        fleet.daemon(0).line("robot has joined");
        fleet.await_that("both daemons have reported", |fleet| {
            let list = fleet.json(0, &["machine", "list", "--json"]);
            let machines = list["machines"].as_array().unwrap().clone();
            machines.len() == 2 && machines.iter().all(|machine| !machine["actual"].is_null())
        });
        fleet
    }

    /// Two operators, with a name for the dataflow that no other fleet of this host has.
    fn with_own_name(namespaces: Option<Namespaces>) -> Self {
        let mut fleet = Self::with_robot_as("operator", namespaces);
        let folder = fleet.folder.path().file_name().unwrap().to_string_lossy();
        let letters: String = folder.chars().filter(char::is_ascii_alphanumeric).collect();
        fleet.dataflow = format!("two-{letters}");
        fleet
    }

    fn state(&self, at: usize) -> PathBuf {
        self.folder.path().join(NAMES[at])
    }

    fn logs(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("{}-logs", NAMES[at]))
    }

    fn daemon(&self, at: usize) -> &Daemon {
        self.daemons[at].as_ref().unwrap()
    }

    fn command(&self, at: usize, arguments: &[&str]) -> Command {
        let nervure = env!("CARGO_BIN_EXE_nervure");
        let mut command = match &self.namespaces {
            Some(namespaces) => namespaces.command(at, nervure),
            None => Command::new(nervure),
        };
        command
            .args(arguments)
            .env("NERVURE_STATE", self.state(at))
            .env("NERVURE_LOG_DIR", self.logs(at))
            .env_remove("NERVURE_DATAFLOW")
            .stdin(Stdio::null());
        command
    }

    fn output(&self, at: usize, arguments: &[&str]) -> String {
        let output = self.command(at, arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let logs = |at| {
            let runs = self.state(at).join("runs");
            let runs = fs::read_dir(runs).into_iter().flatten().flatten();
            runs.map(|run| fs::read_to_string(run.path().join("start.log")).unwrap_or_default())
                .collect::<String>()
        };
        assert!(
            output.status.success(),
            "{arguments:?}: {}{}\n{}\n{}",
            text(&output.stdout),
            text(&output.stderr),
            logs(0),
            logs(1)
        );
        text(&output.stdout)
    }

    fn json(&self, at: usize, arguments: &[&str]) -> Value {
        serde_json::from_str(self.output(at, arguments).lines().last().unwrap()).unwrap()
    }

    fn await_that(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a dataflow file into a folder of its own.
    fn file(&self, dataflow: &Value) -> PathBuf {
        let folder = self.folder.path().join("project");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("two.yml");
        fs::write(&file, dataflow.to_string()).unwrap();
        file
    }

    /// What a node has written to stdout, on one machine.
    fn printed(&self, at: usize, node: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for run in fs::read_dir(self.logs(at).join(&self.dataflow))
            .into_iter()
            .flatten()
            .flatten()
        {
            let log =
                fs::read_to_string(run.path().join(format!("{node}.jsonl"))).unwrap_or_default();
            let records = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.extend(records.filter_map(|record| record["text"].as_str().map(str::to_owned)));
        }
        lines
    }

    /// The state of the dataflow on a machine.
    fn actual(&self, name: &str) -> Option<Value> {
        let list = self.json(0, &["machine", "list", "--json"]);
        let machines = list["machines"].as_array()?.clone();
        let machine = machines
            .into_iter()
            .find(|machine| machine["name"] == name)?;
        machine["actual"]["runs"]
            .as_object()?
            .values()
            .next()
            .cloned()
    }

    /// The processes that the machines have started, other than the daemons.
    fn processes(&self) -> BTreeSet<u32> {
        let folder = self.folder.path().as_os_str().as_encoded_bytes();
        let daemons: Vec<u32> = self
            .daemons
            .iter()
            .flatten()
            .map(|daemon| daemon.child.id())
            .collect();
        let is_ours = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            // A process that has started a part ends a little later.
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            environment.windows(folder.len()).any(|part| part == folder)
                && !daemons.contains(pid)
                && command != b"nervure\0__part\0"
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).collect()
    }

    /// Nothing of a stopped dataflow is left.
    fn check_nothing_left(&self) {
        self.await_that("the processes of the dataflow have ended", |fleet| {
            fleet.processes().is_empty()
        });
        self.await_that("the files of the run are removed", |fleet| {
            [0, 1].iter().all(|at| {
                fs::read_dir(fleet.state(*at).join("runs"))
                    .unwrap()
                    .next()
                    .is_none()
            })
        });
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().flatten() {
            daemon.kill();
        }
        for pid in self.processes() {
            kill(pid);
        }
    }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn test_node() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("test_node")
}

/// Numbers on the robot, which the laptop prints and loses none of.
fn numbers(arguments: &str) -> Value {
    json!({
        "machines": {"robot": {}, "edge": {}},
        "nodes": [
            {"id": "source", "machine": "robot", "path": test_node(), "args": arguments, "outputs": ["out"]},
            {"id": "sink", "machine": "edge", "path": test_node(), "args": "sink 0",
             "inputs": {"in": {"source": "source/out", "queue_policy": "block", "queue_size": 8}}},
        ],
    })
}

/// The numbers that the sink has printed.
fn received(fleet: &Fleet) -> Vec<u64> {
    let number = |line: String| line.strip_prefix("in ")?.parse().ok();
    let lines = fleet.printed(0, "sink").into_iter();
    lines.filter_map(number).collect()
}

/// Starts a source that does not end, and waits for its first samples.
fn start_endless(fleet: &Fleet, source: &str) {
    let file = fleet.file(&numbers(source));
    fleet.output(
        0,
        &["start", file.to_str().unwrap(), "--bind", "edge=laptop"],
    );
    fleet.await_that("samples arrive", |fleet| received(fleet).len() > 20);
}

fn every_sample_crosses(fleet: &Fleet) {
    let file = fleet.file(&numbers("source 300 1 10000"));
    let started = fleet.output(
        0,
        &["start", file.to_str().unwrap(), "--bind", "edge=laptop"],
    );
    assert!(
        started.contains("two runs on laptop (edge), robot"),
        "{started}"
    );
    fleet.await_that("the dataflow ends by itself on both machines", |fleet| {
        NAMES.iter().all(|name| {
            fleet
                .actual(name)
                .is_some_and(|run| run["state"]["is"] == "ended")
        })
    });
    assert_eq!(
        received(fleet),
        (0..300).collect::<Vec<_>>(),
        "{:#?}",
        fleet.printed(0, "sink")
    );
    let stopped = fleet.output(0, &["stop", "-d", "two"]);
    // The end of the topic is the last message.
    assert!(
        stopped.contains("source/out -> laptop: 301 sent, 301 delivered, none lost"),
        "{stopped}"
    );
    fleet.check_nothing_left();
}

#[test]
fn two_machines_on_loopback_run_one_dataflow() {
    every_sample_crosses(&Fleet::new(None));
}

#[test]
fn two_machines_in_namespaces_run_one_dataflow() {
    if let Some(namespaces) = Namespaces::new(1) {
        every_sample_crosses(&Fleet::new(Some(namespaces)));
    }
}

#[test]
fn a_killed_daemon_is_missed_by_no_node_and_its_successor_carries_on() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let processes = fleet.processes();
    fleet.daemons[1].as_mut().unwrap().kill();
    // The robot's next daemon needs no invitation.
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    let before = received(&fleet).len();
    fleet.await_that("samples arrive again", |fleet| {
        received(fleet).len() > before + 100
    });
    assert_eq!(
        fleet.processes(),
        processes,
        "no process has ended or was started"
    );
    let numbers = received(&fleet);
    assert!(
        numbers.is_sorted_by(|one, other| one < other),
        "nothing arrives twice: {numbers:?}"
    );
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_machine_that_boots_without_the_coordinator_starts_what_it_ran() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    // A power failure of both; only the robot boots.
    for daemon in fleet.daemons.iter_mut().flatten() {
        daemon.kill();
    }
    for pid in fleet.processes() {
        kill(pid);
    }
    fleet.await_that("all processes are gone", |fleet| {
        fleet.processes().is_empty()
    });
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.await_that("the robot's part runs again", |fleet| {
        fleet.processes().iter().any(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("source\u{0}1000000")
        })
    });
    // The coordinator is back, and the dataflow runs on both machines as before.
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    let before = received(&fleet).len();
    fleet.await_that("samples arrive again", |fleet| {
        received(fleet).len() > before + 20
    });
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_lossless_topic_loses_nothing_when_the_network_is_interrupted() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    start_endless(&fleet, "source 1000000 2 100");
    let cable = |state| {
        let namespaces = fleet.namespaces.as_ref().unwrap();
        run(namespaces
            .command(0, "ip")
            .args(["link", "set", "cable0", state]));
    };
    let processes = fleet.processes();
    cable("down");
    // Longer than the link's own timeouts of a silent path.
    std::thread::sleep(Duration::from_secs(3));
    let before = received(&fleet).len();
    cable("up");
    fleet.await_that("samples arrive again", |fleet| {
        received(fleet).len() > before + 100
    });
    assert_eq!(
        fleet.processes(),
        processes,
        "no process has ended or was started"
    );
    let numbers = received(&fleet);
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

/// A command that is refused: its exit code and what it says.
fn refused(fleet: &Fleet, at: usize, arguments: &[&str]) -> (Option<i32>, String) {
    let output = fleet.command(at, arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}: {text}");
    (output.status.code(), text)
}

/// Whether `machine list` shows a machine in this role and state.
fn is_listed(fleet: &Fleet, name: &str, role: &str, state: &str) -> bool {
    let list = fleet.output(0, &["machine", "list"]);
    let mut rows = list
        .lines()
        .map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    let expected: Vec<&str> = [name, role].into_iter().chain(state.split(' ')).collect();
    rows.any(|row| row.starts_with(&expected))
}

#[test]
fn a_robot_can_neither_start_nor_stop_nor_invite() {
    let fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let file = fleet.file(&numbers("source 10 1 1"));
    let file = file.to_str().unwrap();
    for (arguments, what) in [
        (
            &["start", file, "--name", "other", "--bind", "edge=laptop"][..],
            "read `actual/laptop`",
        ),
        (&["stop", "-d", "two"], "read `desired/`"),
        (&["machine", "list"], "read `alive/`"),
        (
            &["machine", "invite", "--role", "operator"],
            "manage `invitations/`",
        ),
        (&["machine", "approve", "robot"], "manage `machines/robot`"),
        (&["machine", "revoke", "laptop"], "manage `machines/laptop`"),
    ] {
        let (code, text) = refused(&fleet, 1, arguments);
        assert_eq!(code, Some(2), "{text}");
        let expected = format!("`robot` is a robot of this fleet, and may not {what}");
        assert!(text.contains(&expected), "{arguments:?}: {text}");
        assert!(text.contains("hint: "), "{text}");
    }
    let before = received(&fleet).len();
    fleet.await_that("samples arrive", |fleet| {
        received(fleet).len() > before + 20
    });
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_revoked_machine_is_cut_off_while_its_nodes_go_on_and_returns_by_invitation() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let on_robot = |fleet: &Fleet| {
        let of_robot = fleet.processes().into_iter().filter(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("source\u{0}1000000")
        });
        of_robot.collect::<BTreeSet<_>>()
    };
    let running = on_robot(&fleet);
    assert_eq!(
        fleet.output(0, &["machine", "revoke", "robot"]),
        "robot was revoked\n"
    );
    fleet.await_that("it is shown", |fleet| {
        is_listed(fleet, "robot", "robot", "revoked")
    });
    // The topic ends on the other machine, and the node that waits for it with it.
    fleet.await_that("the consumer's input is closed", |fleet| {
        fleet
            .actual("laptop")
            .is_some_and(|run| run["state"]["is"] == "ended")
    });
    let before = received(&fleet).len();
    let (_, text) = refused(&fleet, 1, &["machine", "list"]);
    assert!(
        text.contains("`robot` was revoked, and needs a new invitation"),
        "{text}"
    );
    assert_eq!(on_robot(&fleet), running, "its nodes go on");
    assert_eq!(received(&fleet).len(), before);
    // Without an invitation its daemon starts, and reaches no machine.
    fleet.daemons[1].as_mut().unwrap().kill();
    let line = fleet.output(0, &["machine", "invite"]);
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &words)));
    fleet.daemon(1).line("robot is ready");
    fleet.await_that("it is reachable again", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    // It has nothing to do any more.
    fleet.await_that("its nodes have ended", |fleet| on_robot(fleet).is_empty());
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[cfg(feature = "etcd")]
#[test]
fn the_state_of_a_fleet_in_etcd_outlives_the_folder_of_the_coordinator() {
    let folder = tempfile::tempdir().unwrap();
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let (address, coordinator) = (free(), free());
    let (clients, peers) = (format!("http://{address}"), format!("http://{}", free()));
    let etcd = Command::new("etcd")
        .args(["--name", "test", "--data-dir"])
        .arg(folder.path())
        .args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ])
        .args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
        ])
        .args(["--initial-cluster", &format!("test={peers}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(etcd) = etcd else {
        eprintln!("SKIPPED: no etcd is installed (apt install etcd-server)");
        return;
    };
    let mut etcd = Ended(etcd);
    let until = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "etcd does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (store, coordinator) = (format!("etcd://{address}"), coordinator.to_string());
    let mut fleet = Fleet {
        dataflow: "two".to_owned(),
        namespaces: None,
        folder: tempfile::tempdir().unwrap(),
        daemons: [None, None],
    };
    let up = [
        "up",
        "--name",
        "laptop",
        "--address",
        &coordinator,
        "--store",
        &store,
    ];
    let laptop = Daemon::start(fleet.command(0, &up));
    let line = laptop.line("nervure join");
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    fleet.daemons[0] = Some(laptop);
    let robot = fleet.command(1, &[words.as_slice(), &["--name", "robot"]].concat());
    fleet.daemons[1] = Some(Daemon::start(robot));
    fleet.await_that("both can be reached", |fleet| {
        is_listed(fleet, "laptop", "operator", "reachable")
            && is_listed(fleet, "robot", "robot", "reachable")
    });
    start_endless(&fleet, "source 1000000 5 100");
    // The coordinator is killed, and its disk is lost but for its key. The next one needs no option.
    fleet.daemons[0].as_mut().unwrap().kill();
    fs::remove_dir_all(fleet.state(0).join("coordinator")).unwrap();
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.daemon(0).line("laptop is ready");
    fleet.await_that("all is as it was", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    let before = received(&fleet).len();
    fleet.await_that("samples arrive", |fleet| {
        received(fleet).len() > before + 20
    });
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
    let _ = etcd.0.kill();
}

/// A process that ends with the test.
#[cfg(feature = "etcd")]
struct Ended(Child);

#[cfg(feature = "etcd")]
impl Drop for Ended {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn machines_of_an_image_wait_until_they_are_approved() {
    let mut fleet = Fleet::new(None);
    let line = fleet.output(
        0,
        &["machine", "invite", "--with-approval", "--valid", "720h"],
    );
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    fleet.daemons[1].as_mut().unwrap().kill();
    let folder = fleet.folder.path().join("image");
    let start = |fleet: &Fleet| {
        let mut command = fleet.command(1, &[&words[..], &["--name", "robot"]].concat());
        command.env("NERVURE_STATE", &folder);
        Daemon::start(command)
    };
    // Another machine has the name.
    let daemon = start(&fleet);
    let line = daemon.line("waiting for approval");
    let name = line
        .split('`')
        .nth(1)
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .to_owned();
    assert!(name.starts_with("robot-"), "{line}");
    fleet.daemons[1] = Some(daemon);
    assert!(is_listed(&fleet, &name, "robot", "waits for approval"));
    let file = fleet.file(&numbers("source 10 1 1"));
    let bind = format!("robot={name}");
    let arguments = [
        "start",
        file.to_str().unwrap(),
        "--bind",
        "edge=laptop",
        "--bind",
        &bind,
    ];
    let (code, text) = refused(&fleet, 0, &arguments);
    assert_eq!(code, Some(2));
    assert!(
        text.contains(&format!("`{name}` waits for approval")),
        "{text}"
    );
    let approved = fleet.output(0, &["machine", "approve", &name]);
    assert_eq!(approved, format!("{name} belongs to the fleet, as robot\n"));
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, &name, "robot", "reachable")
    });
}

#[test]
fn an_interrupted_network_is_shown_and_stops_the_nodes_that_want_it() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    let mut dataflow = numbers("source 1000000 5 100");
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({
        "id": "arm", "machine": "robot", "path": test_node(), "args": "source 1000000 5 100",
        "outputs": ["out"], "on_partition": "stop",
    }));
    let file = fleet.file(&dataflow);
    fleet.output(
        0,
        &["start", file.to_str().unwrap(), "--bind", "edge=laptop"],
    );
    let cable = |state| {
        let namespaces = fleet.namespaces.as_ref().unwrap();
        run(namespaces
            .command(0, "ip")
            .args(["link", "set", "cable0", state]));
    };
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    let states = |fleet: &Fleet| {
        let keepers = fleet.output(1, &["list", "--json"]);
        let list: Value = serde_json::from_str(keepers.lines().last().unwrap()).unwrap();
        let keepers = list
            .as_array()
            .or_else(|| list["dataflows"].as_array())
            .unwrap();
        let keepers = keepers
            .iter()
            .map(|dataflow| dataflow["keeper"].to_string());
        keepers
            .map(|keeper| fleet.output(1, &["status", "-d", &keeper]))
            .collect::<String>()
    };
    let is = |fleet: &Fleet, node: &str, state: &str| {
        states(fleet).lines().any(|line| {
            let mut words = line.split_ascii_whitespace();
            words.next() == Some(node) && words.next() == Some(state)
        })
    };
    fleet.await_that("the node runs", |fleet| is(fleet, "arm", "runs"));
    cable("down");
    fleet.await_that("it is shown as unreachable", |fleet| {
        is_listed(fleet, "robot", "robot", "unreachable")
    });
    fleet.await_that("its daemon has stopped the node", |fleet| {
        is(fleet, "arm", "stopped")
    });
    assert!(is(&fleet, "source", "runs"), "{}", states(&fleet));
    cable("up");
    fleet.await_that("it is reachable again", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    fleet.await_that("the node runs again", |fleet| is(fleet, "arm", "runs"));
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn structs_with_a_schema_arrive_as_they_were_sent() {
    let fleet = Fleet::new(None);
    let file = fleet.file(&json!({
        "machines": {"robot": {}, "laptop": {}},
        "nodes": [
            {"id": "frames", "machine": "robot", "path": test_node(), "args": "frames", "outputs": ["frame"]},
            {"id": "sink", "machine": "laptop", "path": test_node(), "args": "frame-sink",
             "inputs": {"frame": {"source": "frames/frame", "qos": {"traffic_class": "bulk", "lifespan": "1s"}}}},
        ],
    }));
    fleet.output(0, &["start", file.to_str().unwrap()]);
    fleet.await_that("frames arrive", |fleet| fleet.printed(0, "sink").len() > 3);
    fleet.output(0, &["stop", "-d", "two"]);
    let printed = fleet.printed(0, "sink");
    assert_eq!(
        printed[0], "1.5 [20, 30, 3] 18000 [\"cup\"] true",
        "{printed:?}"
    );
    fleet.check_nothing_left();
}

#[test]
fn what_cannot_be_placed_or_prepared_is_named_and_nothing_starts() {
    let fleet = Fleet::new(None);
    let file = fleet.file(&numbers("source 10 1 1"));
    let refused = fleet
        .command(0, &["start", file.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains(
            "machine `edge` with sink: no machine `edge` has joined; these have: laptop, robot"
        ),
        "{text}"
    );

    // A program that the command knows by its environment, and the daemons do not. The first machine
    // to fail is named.
    let mut dataflow = numbers("source 10 1 1");
    dataflow["nodes"][0]["path"] = json!("${PROGRAM_OF_TEST}");
    let file = fleet.file(&dataflow);
    let refused = fleet
        .command(
            0,
            &["start", file.to_str().unwrap(), "--bind", "edge=laptop"],
        )
        .env("PROGRAM_OF_TEST", test_node())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains("nothing of it runs")
            && ["robot: ", "laptop: "]
                .iter()
                .any(|machine| text.contains(&format!("caused by: {machine}error[missing-file]"))),
        "{text}"
    );
    fleet.check_nothing_left();
}

/// A number on the robot every 10 ms with a parameter, which the laptop receives.
fn start_counting(fleet: &Fleet) {
    let mut dataflow = numbers("source 1000000 10 100");
    dataflow["nodes"][0]["params"] = json!({"level": 3});
    let file = fleet.file(&dataflow);
    fleet.output(
        0,
        &[
            "start",
            file.to_str().unwrap(),
            "--bind",
            "edge=laptop",
            "--name",
            &fleet.dataflow,
        ],
    );
    fleet.await_that("samples arrive", |fleet| received(fleet).len() > 20);
}

/// `node` on `machine` in the output of `status --json`.
fn node_of(status: &Value, node: &str) -> Value {
    let nodes = status["nodes"].as_array().unwrap();
    let mut found = nodes.iter().filter(|one| one["id"] == node);
    let only = found.next().cloned().unwrap_or_default();
    assert!(found.next().is_none(), "{node} is there twice: {status:#}");
    only
}

fn every_command_works(fleet: &Fleet) {
    start_counting(fleet);
    for at in [0, 1] {
        let list = fleet.json(at, &["list", "--json"]);
        let parts = list["dataflows"].as_array().unwrap().iter();
        let parts = parts.filter(|part| part["dataflow"] == fleet.dataflow.as_str());
        let machines: Vec<_> = parts.map(|part| part["machine"].clone()).collect();
        assert_eq!(machines, ["laptop", "robot"], "{list:#}");

        // One table: each node on its machine, and no stand-in.
        let status = fleet.json(at, &["status", "-d", &fleet.dataflow, "--json"]);
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status:#}");
        let (source, sink) = (node_of(&status, "source"), node_of(&status, "sink"));
        assert_eq!(
            (&source["machine"], &source["state"]),
            (&json!("robot"), &json!("runs")),
            "{status:#}"
        );
        assert_eq!(
            (&sink["machine"], &sink["state"]),
            (&json!("laptop"), &json!("runs")),
            "{status:#}"
        );

        let topics = fleet.json(at, &["topic", "list", "-d", &fleet.dataflow, "--json"]);
        let topics = topics["topics"].as_array().unwrap();
        assert_eq!(topics.len(), 1, "{topics:#?}");
        let echoed = fleet.json(
            at,
            &[
                "topic",
                "echo",
                "-d",
                &fleet.dataflow,
                "source/out",
                "-n",
                "3",
                "--json",
            ],
        );
        assert_eq!(echoed["topic"], "source/out", "{echoed:#}");
        let rate = fleet.json(
            at,
            &[
                "topic",
                "hz",
                &format!("{}:source/out", fleet.dataflow),
                "-n",
                "2",
                "--interval",
                "500ms",
                "--json",
            ],
        );
        assert!(rate["samples"].as_u64().unwrap() > 1, "{rate:#}");

        let top = fleet.json(
            at,
            &[
                "top",
                "-d",
                &fleet.dataflow,
                "-n",
                "3",
                "--interval",
                "600ms",
                "--json",
            ],
        );
        for node in top["nodes"].as_array().unwrap() {
            assert!(
                node["resident_bytes"]
                    .as_u64()
                    .is_some_and(|bytes| bytes > 0),
                "{top:#}"
            );
        }
        assert!(top["link_bytes"].as_u64().unwrap() > 0, "{top:#}");
        let received = |edge: &Value| edge["received"].as_u64().unwrap() > 0;
        assert!(
            top["edges"].as_array().unwrap().iter().all(received),
            "{top:#}"
        );

        let set = [
            "param",
            "set",
            &format!("{}:source", fleet.dataflow),
            "level",
            if at == 0 { "4" } else { "5" },
        ];
        fleet.output(at, &set);
        let got = fleet.output(
            1 - at,
            &[
                "param",
                "get",
                &format!("{}:source", fleet.dataflow),
                "level",
            ],
        );
        assert_eq!(got, if at == 0 { "4\n" } else { "5\n" });
        let params = fleet.json(at, &["param", "list", "-d", &fleet.dataflow, "--json"]);
        assert_eq!(params["params"].as_array().unwrap().len(), 1, "{params:#}");

        let logs = fleet.output(
            at,
            &[
                "logs",
                "-d",
                &fleet.dataflow,
                "--node",
                "sink",
                "--grep",
                "^in 7$",
            ],
        );
        // The source begins again when it is restarted, below.
        assert_eq!(logs.lines().count(), 1 + at, "{logs}");

        fleet.output(at, &["holders", "-d", &fleet.dataflow]);
        let explained = fleet.output(at, &["explain", "-d", &fleet.dataflow]);
        assert!(explained.contains("nothing was lost"), "{explained}");
        let linted = fleet
            .command(at, &["lint", "-d", &fleet.dataflow, "--window", "1s"])
            .output();
        assert!(matches!(linted.unwrap().status.code(), Some(0 | 3)));

        let before = node_of(&status, "source")["pid"].clone();
        fleet.output(
            at,
            &["node", "restart", &format!("{}:source", fleet.dataflow)],
        );
        let status = fleet.json(at, &["status", "-d", &fleet.dataflow, "--json"]);
        let source = node_of(&status, "source");
        assert_ne!(source["pid"], before, "{status:#}");
    }
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn every_command_works_from_either_machine_on_loopback() {
    every_command_works(&Fleet::with_own_name(None));
}

#[test]
fn every_command_works_from_either_machine_in_namespaces() {
    if let Some(namespaces) = Namespaces::new(1) {
        every_command_works(&Fleet::with_own_name(Some(namespaces)));
    }
}

#[test]
fn a_machine_that_cannot_be_reached_is_shown_as_such_and_ends_no_other_command() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::with_own_name(Some(namespaces));
    start_counting(&fleet);
    fleet.await_that("the robot is seen", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        list["dataflows"].as_array().unwrap().len() == 2
    });
    let cable = |state| {
        let namespaces = fleet.namespaces.as_ref().unwrap();
        run(namespaces
            .command(0, "ip")
            .args(["link", "set", "cable0", state]));
    };
    // One that follows both machines while the network is interrupted.
    let followed = Daemon::start(fleet.command(0, &["top", "-d", &fleet.dataflow, "--json"]));
    followed.line("\"machine\":\"robot\"");
    cable("down");
    followed.line("\"unreachable\":[\"robot\"]");
    drop(followed);

    let list = fleet.json(0, &["list", "--json"]);
    assert_eq!(list["unreachable"][0]["machine"], "robot", "{list:#}");
    let parts = list["dataflows"].as_array().unwrap();
    assert!(
        parts[1]["error"]
            .as_str()
            .unwrap()
            .starts_with("not reached for "),
        "{list:#}"
    );

    let status = fleet
        .command(0, &["status", "-d", &fleet.dataflow])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(1), "{text}{said}");
    assert!(
        text.contains("source  robot    not reached for ") && text.contains(", was: running"),
        "{text}"
    );
    assert!(said.contains("warning: robot cannot be reached"), "{said}");

    // What is here still works; what is there fails, and says why.
    fleet.output(0, &["node", "restart", &format!("{}:sink", fleet.dataflow)]);
    for there in [
        &["node", "restart", &format!("{}:source", fleet.dataflow)][..],
        &[
            "param",
            "get",
            &format!("{}:source", fleet.dataflow),
            "level",
        ],
        &["param", "list", "-d", &fleet.dataflow],
        &["topic", "list", "-d", &fleet.dataflow],
        &["explain", "-d", &fleet.dataflow],
        &["logs", "-d", &fleet.dataflow],
    ] {
        let refused = fleet.command(0, there).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{there:?}: {said}");
        assert!(
            said.contains("robot cannot be reached"),
            "{there:?}: {said}"
        );
    }
    let source = |status: &Value| node_of(status, "source")["pid"].clone();
    let before = source(&fleet.json(1, &["status", "-d", &keeper_of(&fleet, 1), "--json"]));
    cable("up");
    fleet.await_that("the robot is back", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        list["unreachable"].as_array().unwrap().is_empty()
    });
    // No order of before is carried out now.
    let status = fleet.json(0, &["status", "-d", &fleet.dataflow, "--json"]);
    assert_eq!(source(&status), before, "{status:#}");
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

/// The process id of the keeper on a machine, as it is seen there.
fn keeper_of(fleet: &Fleet, at: usize) -> String {
    let list = fleet.json(at, &["list", "--json"]);
    let parts = list["dataflows"].as_array().unwrap();
    let own = parts.iter().find(|part| part["machine"] == NAMES[at]);
    own.unwrap()["keeper"].to_string()
}

#[test]
fn an_echo_that_is_not_shown_fetches_nothing() {
    let fleet = Fleet::with_own_name(None);
    let mut dataflow = numbers("source 1000000 5 100");
    dataflow["nodes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "other", "machine": "robot", "path": test_node(), "args": "source 1000000 2 100", "outputs": ["out"]}));
    let file = fleet.file(&dataflow);
    fleet.output(
        0,
        &[
            "start",
            file.to_str().unwrap(),
            "--bind",
            "edge=laptop",
            "--name",
            &fleet.dataflow,
        ],
    );
    // Both daemons are connected then.
    fleet.await_that("samples arrive", |fleet| received(fleet).len() > 20);
    // Nothing reads what it writes. Its pipe becomes full.
    let mut echo = fleet
        .command(
            0,
            &[
                "topic",
                "echo",
                &format!("{}:other/out", fleet.dataflow),
                "--json",
            ],
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Samples that were sent and received on the edge of the observer.
    let counted = || {
        let top = fleet.json(
            1,
            &[
                "top",
                "-d",
                &fleet.dataflow,
                "-n",
                "1",
                "--interval",
                "600ms",
                "--json",
            ],
        );
        let edges = top["edges"].as_array().unwrap().clone();
        let edge = edges.iter().find(|edge| edge["topic"] == "other/out");
        edge.map(|edge| {
            (
                edge["sent"].as_u64().unwrap(),
                edge["received"].as_u64().unwrap(),
            )
        })
    };
    let mut last = None;
    fleet.await_that("nothing more is fetched, while samples are sent", |_| {
        let now = counted();
        let before = last.replace(now);
        match (before.flatten(), now) {
            (Some((sent, received)), Some((sent_now, received_now))) => {
                received > 20 && received == received_now && sent_now > sent + 100
            }
            _ => false,
        }
    });
    let _ = (echo.kill(), echo.wait());
    // The observer goes with its command.
    fleet.await_that("the topic has no observer", |_| counted().is_none());
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_dataflow_that_runs_on_one_machine_alone_is_stopped_from_another() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    let file = fleet.file(&json!({
        "nodes": [{"id": "source", "path": test_node(), "args": "source 1000000 5 100", "outputs": ["out"]}],
    }));
    fleet.output(
        1,
        &["run", "--detach", "--name", "alone", file.to_str().unwrap()],
    );
    fleet.await_that("it is seen from the laptop", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        let dataflows = list["dataflows"].as_array().unwrap();
        dataflows
            .iter()
            .any(|one| (&one["dataflow"], &one["machine"]) == (&json!("alone"), &json!("robot")))
    });
    let stopped = fleet.output(0, &["stop", "-d", "alone"]);
    assert_eq!(stopped, "alone has stopped\n");
    fleet.check_nothing_left();
}
