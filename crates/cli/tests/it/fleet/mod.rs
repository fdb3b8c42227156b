//! A fleet of two machines: on loopback with two folders of state, and in two network namespaces. On
//! loopback, more can join.

mod add;
mod by_hand;
#[cfg(feature = "etcd")]
mod coordinators;
mod damaged;
mod drain;
mod edges;
mod ends;
mod instances;
mod interrupted;
mod lossless;
mod membership;
mod moved;
mod partition;
mod pause;
mod program;
mod rolling;
mod room;
mod services;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod tools;
mod twice;
mod types;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use nervure_linkemu::namespaces::{Namespaces, run};
use serde_json::{Value, json};
use tempfile::TempDir;
use twice::Twice;

use crate::dataflow::WAIT_LIMIT;

/// Two machines, each with its folders.
struct Fleet {
    /// The name of the dataflow. Other fleets of this host may have one of the same name.
    dataflow: String,
    /// Another domain than the default one, if programs of other fleets would be met there.
    domain: Option<String>,
    namespaces: Option<Namespaces>,
    daemons: Vec<Option<Daemon>>,
    twice: Twice,
    folder: TempDir,
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
        while let Ok(line) = self.lines.recv_timeout(WAIT_LIMIT) {
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

/// The name of a machine: those behind the first two are `r2`, `r3`, ..
fn name(at: usize) -> String {
    NAMES
        .get(at)
        .map_or_else(|| format!("r{at}"), |name| (*name).to_owned())
}

impl Fleet {
    /// Pairs both machines, and waits until their daemons have reported.
    fn new(namespaces: Option<Namespaces>) -> Self {
        Self::with_robot_as("robot", namespaces)
    }

    /// As [`Fleet::new`], with a role for the second machine.
    fn with_robot_as(role: &str, namespaces: Option<Namespaces>) -> Self {
        Self::paired(role, namespaces, None)
    }

    fn paired(role: &str, namespaces: Option<Namespaces>, domain: Option<String>) -> Self {
        let mut fleet = Self::unpaired(namespaces, domain);
        let address = match fleet.namespaces {
            Some(_) => "10.77.0.1:7700",
            None => "127.0.0.1:0",
        };
        let laptop =
            Daemon::start(fleet.command(0, &["up", "--name", "laptop", "--address", address]));
        laptop.line("nervure join");
        fleet.daemons = vec![Some(laptop), None];
        fleet.join(1, role);
        fleet
    }

    /// A fleet without daemons.
    fn unpaired(namespaces: Option<Namespaces>, domain: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            dataflow: "two".to_owned(),
            domain,
            namespaces,
            daemons: Vec::new(),
            // As it is in the paths of files: without symbolic links.
            twice: Twice::watch(folder.path().canonicalize().unwrap()),
            folder,
        }
    }

    /// Pairs a machine, and waits until its daemon and the first one have reported.
    fn join(&mut self, at: usize, role: &str) {
        let line = self.output(0, &["machine", "invite", "--role", role]);
        let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
        let robot = self.command(at, &[words.as_slice(), &["--name", &name(at)]].concat());
        self.daemons
            .resize_with(self.daemons.len().max(at + 1), || None);
        self.daemons[at] = Some(Daemon::start(robot));
        self.daemon(0).line(&format!("{} has joined", name(at)));
        self.await_that("the daemons have reported", |fleet| {
            let list = fleet.json(0, &["machine", "list", "--json"]);
            let machines = list["machines"].as_array().unwrap().clone();
            machines.len() == at + 1 && machines.iter().all(|machine| !machine["actual"].is_null())
        });
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
        self.folder.path().join(name(at))
    }

    fn logs(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("{}-logs", name(at)))
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
            .envs(self.domain.as_ref().map(|name| ("NERVURE_DOMAIN", name)))
            .stdin(Stdio::null());
        command
    }

    fn output(&self, at: usize, arguments: &[&str]) -> String {
        let output = self.run(&mut self.command(at, arguments));
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

    /// Runs a command to its end.
    fn run(&self, command: &mut Command) -> Output {
        match output_in_time(command) {
            Some(output) => output,
            None => panic!(
                "{command:?}: not within {WAIT_LIMIT:?}\n{}",
                self.describe()
            ),
        }
    }

    /// Waits for the end of a process.
    fn wait(&self, child: &mut Child) -> ExitStatus {
        match end_in_time(child) {
            Some(status) => status,
            None => panic!("{child:?}: not within {WAIT_LIMIT:?}\n{}", self.describe()),
        }
    }

    fn json(&self, at: usize, arguments: &[&str]) -> Value {
        serde_json::from_str(self.output(at, arguments).lines().last().unwrap()).unwrap()
    }

    fn await_that(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + WAIT_LIMIT;
        while !is_so(self) {
            if Instant::now() >= until {
                panic!("{what}: not within {WAIT_LIMIT:?}\n{}", self.describe());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.check_no_node_twice();
    }

    fn check_no_node_twice(&self) {
        let found = self.twice.found();
        assert!(found.is_empty(), "{found:#?}\n{}", self.describe());
    }

    /// The list of machines and the log of each daemon, for a test that has failed.
    fn describe(&self) -> String {
        let list = output_in_time(&mut self.command(0, &["machine", "list", "--json"]));
        let mut text = format!("the machines: {list:?}");
        for (at, daemon) in self.daemons.iter().enumerate() {
            let lines = daemon.iter().flat_map(|daemon| daemon.lines.try_iter());
            text += &format!("\nthe daemon of {}: {:#?}", name(at), Vec::from_iter(lines));
            let folder = self.logs(at).join(&self.dataflow);
            for run in fs::read_dir(folder).into_iter().flatten().flatten() {
                for log in fs::read_dir(run.path()).into_iter().flatten().flatten() {
                    let lines = fs::read_to_string(log.path()).unwrap_or_default();
                    let lines: Vec<&str> = lines.lines().collect();
                    let last = &lines[lines.len().saturating_sub(10)..];
                    text += &format!("\n{}: {last:#?}", log.path().display());
                }
            }
        }
        text
    }

    /// Starts another dataflow on both machines, and stops it.
    fn start_and_stop(&self, name: &str, dataflow: &Value) {
        let file = self.file(dataflow);
        let bound = ["--bind", "edge=laptop", "--name", name];
        self.output(
            0,
            &[&["start", file.to_str().unwrap()], &bound[..]].concat(),
        );
        self.output(0, &["stop", "-d", name]);
    }

    /// Writes a dataflow file into a folder of its own.
    fn file(&self, dataflow: &Value) -> PathBuf {
        let folder = self.folder.path().join("project");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("two.yml");
        fs::write(&file, dataflow.to_string()).unwrap();
        file
    }

    /// Starts a dataflow under the name of this fleet, with its role `edge` on the laptop.
    fn start(&self, dataflow: &Value) -> String {
        let file = self.file(dataflow);
        let start = ["start", file.to_str().unwrap(), "--bind", "edge=laptop"];
        self.output(0, &[&start[..], &["--name", &self.dataflow]].concat())
    }

    /// Waits until the sink on the laptop has received more samples than now.
    fn await_samples(&self, more: usize) {
        let before = received(self).len();
        self.await_that("samples arrive", |fleet| {
            received(fleet).len() > before + more
        });
    }

    /// Lines on stdout of a node, on one machine.
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
            let printed = records.filter(|record| record["stream"] == "stdout");
            lines.extend(printed.filter_map(|record| record["text"].as_str().map(str::to_owned)));
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

    /// Whether the dataflow has ended on a machine.
    fn has_ended(&self, name: &str) -> bool {
        self.actual(name)
            .is_some_and(|run| run["state"]["is"] == "ended")
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

    /// Puts the cable between the namespaces `up` or `down`.
    fn cable(&self, state: &str) {
        let namespaces = self.namespaces.as_ref().unwrap();
        run(namespaces
            .command(0, "ip")
            .args(["link", "set", "cable0", state]));
    }

    /// Nothing of a stopped dataflow is left.
    fn check_nothing_left(&self) {
        self.await_that("the processes of the dataflow have ended", |fleet| {
            fleet.processes().is_empty()
        });
        self.await_that("the files of the run are removed", |fleet| {
            (0..fleet.daemons.len()).all(|at| {
                fs::read_dir(fleet.state(at).join("runs"))
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
        if !std::thread::panicking() {
            self.check_no_node_twice();
        }
    }
}

/// Runs a command to its end; `None` if that takes too long.
fn output_in_time(command: &mut Command) -> Option<Output> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = read_all(child.stdout.take().unwrap());
    let stderr = read_all(child.stderr.take().unwrap());
    let status = end_in_time(&mut child)?;
    // A process that it has left behind may hold the pipes.
    Some(Output {
        status,
        stdout: stdout.recv_timeout(WAIT_LIMIT).ok()?,
        stderr: stderr.recv_timeout(WAIT_LIMIT).ok()?,
    })
}

fn read_all(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let _ = sender.send(bytes);
    });
    receiver
}

/// Waits for the end of a process; `None` if that takes too long, and then it is killed.
fn end_in_time(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + WAIT_LIMIT;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return Some(status),
            None if Instant::now() >= until => break,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    let _ = (child.kill(), child.wait());
    None
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
    fleet.start(&numbers(source));
    fleet.await_that("samples arrive", |fleet| received(fleet).len() > 20);
}

/// A command that is refused: its exit code and stderr.
fn refused(fleet: &Fleet, at: usize, arguments: &[&str]) -> (Option<i32>, String) {
    let output = fleet.run(&mut fleet.command(at, arguments));
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

/// A number on the robot every 10 ms with a parameter, which the laptop receives.
fn start_counting(fleet: &Fleet) {
    let mut dataflow = numbers("source 1000000 10 100");
    dataflow["nodes"][0]["params"] = json!({"level": 3});
    fleet.start(&dataflow);
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

/// The process id of the keeper on a machine, as it is seen there.
fn keeper_of(fleet: &Fleet, at: usize) -> String {
    let list = fleet.json(at, &["list", "--json"]);
    let parts = list["dataflows"].as_array().unwrap();
    // Others of this host may run dataflows, too.
    let mut of_fleet = parts
        .iter()
        .filter(|part| part["dataflow"] == *fleet.dataflow);
    let own = of_fleet.find(|part| part["machine"] == name(at));
    own.unwrap()["keeper"].to_string()
}
