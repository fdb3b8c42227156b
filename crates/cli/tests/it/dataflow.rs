//! A dataflow in a folder of its own, and `nervure run --json` on it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit of a wait; tests need only a small part of it.
pub const WAIT_LIMIT: Duration = Duration::from_secs(90);

/// A dataflow file under construction.
pub struct Dataflow {
    name: String,
    folder: TempDir,
    nodes: Vec<Value>,
    /// Keys of the dataflow itself.
    keys: Value,
}

impl Dataflow {
    pub fn new() -> Self {
        Self {
            name: "test".to_owned(),
            folder: tempfile::tempdir().unwrap(),
            nodes: Vec::new(),
            keys: json!({}),
        }
    }

    /// A dataflow with a unique name, by which commands can select it.
    pub fn named() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            name: format!("test-{}-{number}", std::process::id()),
            ..Self::new()
        }
    }

    /// Adds a node that is a shell script, with further keys. Variables in the script are the shell's.
    pub fn shell(mut self, id: &str, script: &str, keys: Value) -> Self {
        let script = script.replace('$', "$$");
        self.nodes.push(merged(
            json!({"id": id, "path": "sh", "args": ["-c", script]}),
            keys,
        ));
        self
    }

    /// Adds a node that runs `test_node`, with further keys.
    pub fn node(mut self, id: &str, arguments: &str, keys: Value) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_nervure"))
            .with_file_name("examples")
            .join("test_node");
        self.nodes.push(merged(
            json!({"id": id, "path": program, "args": arguments}),
            keys,
        ));
        self
    }

    /// Adds a node with all its keys.
    pub fn raw(mut self, node: Value) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds a Python script.
    pub fn python(mut self, id: &str, script: &str, keys: Value) -> Self {
        fs::write(self.folder.path().join(format!("{id}.py")), script).unwrap();
        self.nodes
            .push(merged(json!({"id": id, "path": format!("{id}.py")}), keys));
        self
    }

    /// Sets a key of the dataflow itself.
    pub fn key(mut self, name: &str, value: Value) -> Self {
        self.keys[name] = value;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the file. YAML includes JSON.
    pub fn write(&self) -> PathBuf {
        let file = self.folder.path().join(format!("{}.yml", self.name));
        fs::write(
            &file,
            merged(json!({"nodes": self.nodes}), self.keys.clone()).to_string(),
        )
        .unwrap();
        file
    }

    /// `nervure` with these arguments, in a defined environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = nervure(self.folder.path());
        command.args(arguments);
        command
    }

    /// `nervure run --json` with further arguments.
    pub fn run(self, arguments: &[&str]) -> Run {
        let command = self.command(&["run", "--json"]);
        self.start(command, arguments)
    }

    /// Like [`Self::run`], in a domain.
    pub fn run_in(self, domain: &str, arguments: &[&str]) -> Run {
        let command = self.command(&["run", "--json", "--domain", domain]);
        self.start(command, arguments)
    }

    /// `nervure replay --json` of a recording in the place of the sources.
    pub fn replay(self, recording: &Path, options: &[&str]) -> Run {
        let mut command = self.command(&["replay", "--json"]);
        command.args(options).arg(recording);
        self.start(command, &[])
    }

    /// Like [`Self::run`], after a shell command.
    pub fn run_with(self, preparation: &str, arguments: &[&str]) -> Run {
        let mut command = prepared(Command::new("sh"), self.folder.path());
        let script = format!("{preparation}; exec \"$0\" run --json \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_nervure")]);
        self.start(command, arguments)
    }

    fn start(self, mut command: Command, arguments: &[&str]) -> Run {
        let file = self.write();
        let mut child = command
            .arg(file)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        Run {
            child: Killed(child),
            messages,
            seen: Vec::new(),
            folder: self.folder,
            name: self.name,
        }
    }
}

/// Exit code, stdout and stderr of a command.
pub fn output(mut command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

/// `nervure`, without variables in its environment that change its behaviour.
pub fn nervure(folder: &Path) -> Command {
    prepared(Command::new(env!("CARGO_BIN_EXE_nervure")), folder)
}

pub fn prepared(mut command: Command, folder: &Path) -> Command {
    command
        .current_dir(folder)
        .env("NERVURE_LOG_DIR", folder.join("logs"))
        .env("NO_COLOR", "1");
    command
        .env_remove("VIRTUAL_ENV")
        .env_remove("NERVURE_DOMAIN")
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null());
    command
}

fn merged(mut node: Value, keys: Value) -> Value {
    let keys = keys.as_object().cloned().unwrap_or_default();
    node.as_object_mut().unwrap().extend(keys);
    node
}

/// A dataflow that runs.
pub struct Run {
    child: Killed,
    messages: Receiver<Value>,
    seen: Vec<Value>,
    folder: TempDir,
    name: String,
}

/// A process that is killed at the end of the test, also when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The result of a run.
pub struct Outcome {
    pub code: Option<i32>,
    pub stderr: String,
    /// Every message of `run`.
    pub seen: Vec<Value>,
    folder: TempDir,
}

impl Run {
    /// Unique name, for `-d`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `nervure` with these arguments, in the environment of the run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = nervure(self.folder.path());
        command.args(arguments);
        command
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child.0)
    }

    /// Waits for the next message that satisfies `holds`.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            // A timeout of zero would not end the loop while other messages keep coming.
            let left = deadline.checked_duration_since(Instant::now());
            let message = left
                .and_then(|left| self.messages.recv_timeout(left).ok())
                .unwrap_or_else(|| {
                    panic!("there was no {what}: {:#?}", self.seen);
                });
            self.seen.push(message.clone());
            if holds(&message) {
                return message;
            }
        }
    }

    /// Waits until a node is started; returns its process.
    pub fn started(&mut self, node: &str) -> Process {
        let is_started =
            |message: &Value| message["message"] == "node_started" && message["id"] == node;
        let earlier = self
            .seen
            .iter()
            .rev()
            .find(|message| is_started(message))
            .cloned();
        let message = earlier.unwrap_or_else(|| self.until("start", is_started));
        Process::new(message["pid"].as_i64().unwrap())
    }

    /// Waits for a line of a node with this beginning; returns the rest.
    pub fn line(&mut self, node: &str, begin: &str) -> String {
        let message = self.until(&format!("line `{begin}..` of `{node}`"), |message| {
            message["message"] == "log"
                && message["node"] == node
                && text(message).starts_with(begin)
        });
        text(&message)[begin.len()..].trim().to_owned()
    }

    /// Lines of a node among the messages taken so far.
    pub fn seen_lines(&self, node: &str) -> Vec<&str> {
        let is_its = |message: &&Value| message["message"] == "log" && message["node"] == node;
        self.seen.iter().filter(is_its).map(text).collect()
    }

    /// Waits for the end of a node.
    pub fn ended(&mut self, node: &str) -> Value {
        self.until("end", |message| {
            message["message"] == "node_ended" && message["id"] == node
        })
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the end of `run`.
    pub fn finish(mut self) -> Outcome {
        let deadline = Instant::now() + WAIT_LIMIT;
        while let Ok(message) = self.messages.recv_timeout(WAIT_LIMIT) {
            self.seen.push(message);
            assert!(Instant::now() < deadline, "the run does not end");
        }
        let mut stderr = String::new();
        self.child
            .0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        let code = self.child.0.wait().unwrap().code();
        Outcome {
            code,
            stderr,
            seen: self.seen,
            folder: self.folder,
        }
    }
}

impl Outcome {
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lines of a node, and lines about it.
    pub fn lines(&self, node: &str) -> Vec<&str> {
        self.seen
            .iter()
            .filter(|message| message["message"] == "log" && message["node"] == node)
            .map(text)
            .collect()
    }

    /// Every end of a node.
    pub fn ends(&self, node: &str) -> Vec<&Value> {
        self.seen
            .iter()
            .filter(|message| message["message"] == "node_ended" && message["id"] == node)
            .collect()
    }

    pub fn summary(&self) -> &Value {
        self.seen
            .last()
            .filter(|message| message["message"] == "summary")
            .expect("a summary")
    }

    /// Log records of a node, from its file.
    pub fn log_file(&self, node: &str) -> Vec<Value> {
        let file = PathBuf::from(self.summary()["log_folder"].as_str().unwrap())
            .join(format!("{node}.jsonl"));
        fs::read_to_string(file)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn text(message: &Value) -> &str {
    message["text"].as_str().unwrap()
}

/// A process by its pidfd, so that a reused process id is not mistaken for it.
pub struct Process {
    pub pid: Pid,
    /// `None` if it ended before the pidfd was opened.
    pidfd: Option<OwnedFd>,
}

impl Process {
    pub fn new(pid: i64) -> Self {
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => None,
            other => Some(other.unwrap()),
        };
        Self { pid, pidfd }
    }

    /// The process whose id a node has printed.
    pub fn from_pid_text(number: &str) -> Self {
        Self::new(number.parse().unwrap())
    }

    pub fn parent(&self) -> Self {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_pid())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        Self::from_pid_text(rest.split_ascii_whitespace().nth(1).unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        let pidfd = self.pidfd.as_ref().expect("a process that lives");
        rustix::process::pidfd_send_signal(pidfd, signal).unwrap();
    }

    /// Stops the process, and waits until it has stopped: a later signal may overtake SIGSTOP.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + WAIT_LIMIT;
        let stat = || fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_pid())).unwrap();
        while !stat().rsplit_once(')').unwrap().1.starts_with(" T") {
            assert!(
                Instant::now() < deadline,
                "process {:?} does not stop",
                self.pid
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    pub fn assert_ends(&self) {
        let Some(pidfd) = &self.pidfd else { return };
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: WAIT_LIMIT.as_secs() as i64,
            tv_nsec: 0,
        };
        assert_eq!(
            poll(&mut polled, Some(&timeout)).unwrap(),
            1,
            "process {:?} is left",
            self.pid
        );
    }
}
