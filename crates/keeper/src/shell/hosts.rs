//! Hosts: the processes in which composed nodes run as threads.
//!
//! A host starts with the first of its nodes, and ends with the last. So a component that runs alone
//! is a process like that of any node, and a restart after the end of all nodes begins afresh.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use nervure_protocol::{
    STACKS_SIGNAL, encode,
    host_to_keeper::{Ended, Message},
    keeper_to_host::{self, Start},
    report::Level,
};
use nervure_shm::Seqpacket;
use rustix::{
    fd::{AsFd, OwnedFd},
    process::Pid,
};
use tracing::debug;

use super::{
    error::{KeeperError, retryable},
    event_loop::Shell,
    inspect, lines,
    outbox::Outbox,
    process::NotStarted,
    slot::{Slot, Stream},
    token::Token,
};
use crate::{
    descendants,
    machine::{End, Event, Signal},
    plan::{NodePlan, NodeSettings, Plan, Program},
};

/// The names of the processes that several nodes share.
pub fn shared_processes(plan: &Plan) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for process in plan.nodes.iter().filter_map(|node| node.host()) {
        *counts.entry(process).or_default() += 1;
    }
    let shared = counts.into_iter().filter(|(_, nodes)| *nodes > 1);
    shared.map(|(process, _)| process.to_owned()).collect()
}

/// The hosts that run.
#[derive(Debug)]
pub struct Hosts {
    /// The names of processes with a log of their own.
    logged: Vec<String>,
    running: BTreeMap<usize, Host>,
    next: usize,
}

#[derive(Debug)]
struct Host {
    /// The name of the process, or the id of its only node.
    name: String,
    pid: Pid,
    /// Its connection and its output.
    slot: Slot,
    /// The nodes that run in it.
    nodes: BTreeSet<usize>,
    /// Those of them that have been asked to end by a signal, which would reach all.
    terminated: BTreeSet<usize>,
    /// How the last node ended, while the process is about to.
    last: Option<(usize, Ended)>,
    /// Why the keeper kills it.
    kill_reason: Option<String>,
}

impl Hosts {
    /// None runs yet; `logged` are the processes with logs of their own.
    pub fn new(logged: Vec<String>) -> Self {
        Self {
            logged,
            running: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.running.values().map(|host| &host.slot)
    }

    pub fn of_process(&self, pid: Pid) -> Option<usize> {
        let mut running = self.running.iter();
        running
            .find(|(_, host)| host.pid == pid)
            .map(|(&number, _)| number)
    }

    /// The host that takes nodes of that process.
    fn open(&self, process: &str) -> Option<usize> {
        let is_open =
            |host: &Host| host.name == process && host.last.is_none() && host.kill_reason.is_none();
        let mut running = self.running.iter();
        running
            .find(|(_, host)| is_open(host) && !host.slot.is_closed())
            .map(|(&number, _)| number)
    }

    fn of_node(&self, node: usize) -> Option<usize> {
        let mut running = self.running.iter();
        running
            .find(|(_, host)| {
                host.nodes.contains(&node)
                    || host.last.as_ref().is_some_and(|(last, _)| *last == node)
            })
            .map(|(&number, _)| number)
    }
}

impl Shell {
    /// Whether a host runs the node.
    pub(super) fn is_composed(&self, node: usize) -> bool {
        let plan = self.machine.plan();
        plan.nodes
            .get(node)
            .is_some_and(|node| node.host().is_some())
    }

    /// The process in which a node runs, if the keeper has started it.
    pub(super) fn pid_of(&self, node: usize) -> Option<Pid> {
        let host = self.hosts.of_node(node);
        host.map(|host| self.hosts.running[&host].pid)
            .or_else(|| self.slots[node].pid())
    }

    /// Starts a node in its host, and the host if it does not run.
    pub(super) fn spawn_composed(&mut self, node: usize) -> Result<(), KeeperError> {
        self.renew_pages(node)?;
        let (ours, theirs) =
            Seqpacket::pair().map_err(retryable("cannot make the control socket of a node"))?;
        let plan = &self.machine.plan().nodes[node];
        let (Some(process), Program::Component(component)) = (plan.host(), &plan.program) else {
            return Ok(());
        };
        let start = keeper_to_host::Message::Start(Start {
            node: plan.id.clone(),
            component: component.clone(),
            cpu_affinity: plan.settings.cpu_affinity.clone(),
            scheduling: plan.settings.scheduling,
        });
        let process = process.to_owned();
        let message = encode(&start).map_err(|error| NotStarted::Other(error.to_string()));
        let host = match self.hosts.open(&process) {
            Some(host) => Ok(host),
            None => self.start_host(&process)?,
        };
        let (host, message) = match (host, message) {
            (Ok(host), Ok(message)) => (host, message),
            (Err(error), _) | (_, Err(error)) => {
                // A shortage ends this node, not the keeper.
                self.short_since = None;
                let reason = error.to_string();
                self.events.push_back(Event::NotStarted { node, reason });
                return Ok(());
            }
        };
        self.watch(ours.as_fd(), Token::Control(node))?;
        self.slots[node].begin_guest(ours, Outbox::default());
        let Some(host) = self.hosts.running.get_mut(&host) else {
            return Ok(());
        };
        host.slot
            .send(message, vec![Rc::new(OwnedFd::from(theirs))]);
        host.nodes.insert(node);
        host.terminated.remove(&node);
        let pid = host.pid.as_raw_pid().unsigned_abs();
        self.events.push_back(Event::Started { node, pid });
        Ok(())
    }

    /// Starts the host of a process. The outer error is one that is retried.
    fn start_host(&mut self, process: &str) -> Result<Result<usize, NotStarted>, KeeperError> {
        let (ours, theirs) =
            Seqpacket::pair().map_err(retryable("cannot make the control socket of a host"))?;
        let Some(plan) = host_plan(self.machine.plan(), process) else {
            return Ok(Err(format!("no node is in the process {process}").into()));
        };
        let started = match self.start_process_of(&plan, theirs.as_fd()) {
            Ok(started) => started,
            Err(NotStarted::Short(shortage)) if !self.has_lost_patience() => {
                let what = "cannot start a host";
                return Err(KeeperError::Shortage { what, shortage });
            }
            Err(error) => return Ok(Err(error)),
        };
        let number = self.hosts.next;
        self.hosts.next += 1;
        self.watch(ours.as_fd(), Token::Host(number))?;
        for (output, stream) in [
            (&started.stdout, Stream::Stdout),
            (&started.stderr, Stream::Stderr),
        ] {
            self.watch(output.as_fd(), Token::HostOutput(number, stream))?;
        }
        let pid = started.pid;
        debug!(process, pid = pid.as_raw_pid(), "host started");
        let mut slot = Slot::new();
        slot.begin(ours, started);
        let host = Host {
            name: process.to_owned(),
            pid,
            slot,
            nodes: BTreeSet::new(),
            terminated: BTreeSet::new(),
            last: None,
            kill_reason: None,
        };
        self.hosts.running.insert(number, host);
        Ok(Ok(number))
    }

    pub(super) fn flush_hosts(&mut self, now: Duration) {
        for host in self.hosts.running.values_mut() {
            host.slot.flush(now);
        }
    }

    pub(super) fn receive_from_host(&mut self, number: usize) {
        let Some(host) = self.hosts.running.get_mut(&number) else {
            return;
        };
        for message in host.slot.receive::<Message>(&mut self.buffer) {
            match message {
                Ok(Message::Running { node, thread }) => debug!(node, thread, "node runs"),
                Ok(Message::Ended(ended)) => self.composed_ended(number, ended),
                Ok(Message::Unknown) => {}
                Err(what) => {
                    let why = format!("its host sent an invalid message: {what}");
                    self.kill_host(number, &why);
                }
            }
        }
    }

    /// A node has ended in a host that runs. The end of the last one counts when the process is
    /// gone.
    fn composed_ended(&mut self, number: usize, ended: Ended) {
        let Some(host) = self.hosts.running.get_mut(&number) else {
            return;
        };
        let plan = self.machine.plan();
        let mut nodes = host.nodes.iter().copied();
        let Some(node) = nodes.find(|&node| plan.nodes[node].id == ended.node) else {
            return;
        };
        host.nodes.remove(&node);
        host.terminated.remove(&node);
        if host.nodes.is_empty() {
            host.last = Some((node, ended));
            host.slot.close();
            return;
        }
        let stderr_tail = host.slot.stderr_tail();
        self.node_ended(node, End::Code(ended.code), reason(&ended), stderr_tail);
    }

    fn node_ended(
        &mut self,
        node: usize,
        end: End,
        reason: Option<String>,
        stderr_tail: Vec<String>,
    ) {
        // It may have sent Goodbye.
        self.receive_from_node(node);
        self.slots[node].end();
        self.events.push_back(Event::Ended {
            node,
            end,
            reason,
            stderr_tail,
        });
    }

    /// The process of a host has ended, and with it all nodes that ran there.
    pub(super) fn host_ended(&mut self, number: usize, pid: Pid) {
        self.receive_from_host(number);
        let Some(name) = self.hosts.running.get(&number).map(|host| &host.name) else {
            return;
        };
        let name = name.clone();
        let only = self.only_node_of(&name);
        self.kill_leftovers(&name, only, pid);
        let end = descendants::reap(pid);
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.drain_host_output(number, stream);
        }
        let (Some(mut host), Some(end)) = (self.hosts.running.remove(&number), end) else {
            return;
        };
        debug!(process = name, ?end, "host ended");
        let stderr_tail = host.slot.end();
        if let Some((node, ended)) = host.last {
            let (end, reason) = match end {
                End::Code(0) => (End::Code(ended.code), reason(&ended)),
                // The library's destructors failed, or the process was killed meanwhile.
                end => (end, host.kill_reason.clone()),
            };
            self.node_ended(node, end, reason, stderr_tail.clone());
        }
        let is_shared = only.is_none();
        for node in host.nodes {
            let reason = match (&host.kill_reason, is_shared) {
                (Some(why), _) => Some(why.clone()),
                (None, true) => Some(format!("its process `{name}` {}", past(end))),
                (None, false) => None,
            };
            // A process that ends under its nodes has not succeeded, whatever its code.
            let end = match end {
                End::Code(0) => End::Code(1),
                end => end,
            };
            self.node_ended(node, end, reason, stderr_tail.clone());
        }
    }

    /// Signals a node in a host. A signal reaches all nodes of the process.
    pub(super) fn signal_composed(&mut self, node: usize, signal: Signal) {
        let Some(number) = self.hosts.of_node(node) else {
            return;
        };
        let Some(host) = self.hosts.running.get_mut(&number) else {
            return;
        };
        let pid = host.pid;
        match signal {
            Signal::Terminate => {
                host.terminated.insert(node);
                // Others of the process shall go on, or end in order.
                if host.nodes.is_subset(&host.terminated) {
                    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::TERM);
                }
            }
            Signal::Kill => {
                let id = self.machine.plan().nodes[node].id.clone();
                self.kill_host(number, &format!("`{id}` had to be killed"));
            }
            Signal::Stacks if inspect::catches(pid, STACKS_SIGNAL) => {
                let _ = descendants::signal(pid, STACKS_SIGNAL);
            }
            Signal::Stacks => {}
        }
    }

    /// Kills the process of a host, and so all its nodes.
    fn kill_host(&mut self, number: usize, why: &str) {
        let Some(host) = self.hosts.running.get_mut(&number) else {
            return;
        };
        let (name, pid) = (host.name.clone(), host.pid);
        let is_first = host.kill_reason.is_none();
        let plan = self.machine.plan();
        let ids: Vec<&str> = host
            .nodes
            .iter()
            .map(|&node| plan.nodes[node].id.as_str())
            .collect();
        let text = format!("kills the process `{name}` with {}: {why}", ids.join(", "));
        host.kill_reason
            .get_or_insert_with(|| format!("its process `{name}` was killed: {why}"));
        let is_shared = host.nodes.len() > 1;
        if is_first && is_shared {
            self.log(None, Level::Warn, "keeper", text);
        }
        let only = self.only_node_of(&name);
        self.kill_group(&name, only);
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }

    pub(super) fn read_host_output(&mut self, number: usize, stream: Stream) {
        let host = self.hosts.running.get_mut(&number);
        let lines = host.map(|host| host.slot.read(stream)).unwrap_or_default();
        self.log_host_lines(number, stream, lines);
    }

    fn drain_host_output(&mut self, number: usize, stream: Stream) {
        let host = self.hosts.running.get_mut(&number);
        let lines = host.map(|host| host.slot.drain(stream)).unwrap_or_default();
        self.log_host_lines(number, stream, lines);
    }

    /// Logs what a process wrote. Which of several nodes wrote a line cannot be known: it is logged
    /// under the name of the process.
    fn log_host_lines(&mut self, number: usize, stream: Stream, lines: Vec<String>) {
        let Some(host) = self.hosts.running.get(&number) else {
            return;
        };
        let name = host.name.clone();
        let logged = self.hosts.logged.iter().position(|known| *known == name);
        let only = self.only_node_of(&name);
        for line in lines {
            let level = lines::guess_level(&line);
            match (logged, only) {
                (Some(at), _) => {
                    let file = self.own_nodes + 1 + at;
                    self.log_as(name.clone(), file, level, stream.name(), line);
                }
                (None, only) => self.log(only, level, stream.name(), line),
            }
        }
    }

    /// The node of a process that it does not share.
    fn only_node_of(&self, process: &str) -> Option<usize> {
        let nodes = self.machine.plan().nodes.iter();
        let mut own = nodes
            .enumerate()
            .filter(|(_, node)| node.host() == Some(process))
            .map(|(at, _)| at);
        own.next().filter(|_| own.next().is_none())
    }
}

/// The process of a host, as that of a node: its nodes have the same environment and folder.
fn host_plan(plan: &Plan, process: &str) -> Option<NodePlan> {
    let mut nodes = plan.nodes.iter();
    let first = nodes.find(|node| node.host() == Some(process))?;
    Some(NodePlan {
        id: process.to_owned(),
        program: first.program.clone(),
        settings: NodeSettings {
            env: first.settings.env.clone(),
            folder: first.settings.folder.clone(),
            ..NodeSettings::default()
        },
        outputs: Vec::new(),
        inputs: Vec::new(),
        shared_memory_bytes: 0,
        services: Vec::new(),
        clients: Vec::new(),
    })
}

fn reason(ended: &Ended) -> Option<String> {
    let end = End::Code(ended.code);
    (!ended.reason.is_empty()).then(|| format!("{end}: {}", ended.reason))
}

/// How a process ended, behind its name.
fn past(end: End) -> String {
    match end {
        End::Code(_) => format!("{end} while the node ran"),
        End::Signal(_) => format!("was {end}"),
    }
}
