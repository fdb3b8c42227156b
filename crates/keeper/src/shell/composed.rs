//! Composed nodes: those that a host runs.

use std::{collections::BTreeSet, path::Path, rc::Rc};

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
    crash,
    error::{KeeperError, retryable},
    event_loop::Shell,
    hosts::Host,
    inspect, lines, outputs,
    process::{NotStarted, output_pipe},
    slot::{Slot, Stream},
    token::Token,
};
use crate::{
    descendants,
    machine::{End, Event, Signal},
    plan::{NodePlan, NodeSettings, Plan},
};

/// Whether a host runs the node.
pub fn is_composed(shell: &Shell, node: usize) -> bool {
    let plan = shell.machine.plan();
    plan.nodes
        .get(node)
        .is_some_and(|node| node.host().is_some())
}

/// The process in which a node runs, if the keeper has started it.
pub fn pid_of(shell: &Shell, node: usize) -> Option<Pid> {
    let host = shell.hosts.of_node(node);
    host.map(|host| shell.hosts.running[&host].pid)
        .or_else(|| shell.slots[node].pid())
}

/// Starts a node in its host, and the host if it does not run.
pub fn spawn(shell: &mut Shell, node: usize) -> Result<(), KeeperError> {
    shell.renew_pages(node)?;
    let (ours, theirs) =
        Seqpacket::pair().map_err(retryable("cannot make the control socket of a node"))?;
    let plan = &shell.machine.plan().nodes[node];
    let Some(process) = plan.host() else {
        return Ok(());
    };
    let is_python = plan.program.is_python();
    let start = keeper_to_host::Message::Start(Start {
        node: plan.id.clone(),
        program: plan.program.clone(),
        args: plan.settings.args.clone(),
        cpu_affinity: plan.settings.cpu_affinity.clone(),
        scheduling: plan.settings.scheduling,
    });
    let process = process.to_owned();
    let message = encode(&start).map_err(|error| NotStarted::Other(error.to_string()));
    let host = match shell.hosts.open(&process) {
        Some(host) => Ok(host),
        None => start_host(shell, &process)?,
    };
    let outputs = match is_python {
        true => own_outputs(),
        false => Ok(Vec::new()),
    };
    let (host, message, outputs) = match (host, message, outputs) {
        (Ok(host), Ok(message), Ok(outputs)) => (host, message, outputs),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            // A shortage ends this node, not the keeper.
            shell.short_since = None;
            let reason = error.to_string();
            shell.events.push_back(Event::NotStarted { node, reason });
            return Ok(());
        }
    };
    shell.watch(ours.as_fd(), Token::Control(node))?;
    let mut descriptors = vec![Rc::new(OwnedFd::from(theirs))];
    let mut own = [None, None];
    for (stream, read, write) in outputs {
        shell.watch(read.as_fd(), Token::Output(node, stream))?;
        own[stream as usize] = Some(read);
        descriptors.push(Rc::new(write));
    }
    let Some(host) = shell.hosts.running.get_mut(&host) else {
        return Ok(());
    };
    let interpreter = host.slot.interpreter().map(Path::to_owned);
    shell.slots[node].begin_hosted(ours, own, interpreter);
    host.slot.send(message, descriptors);
    host.nodes.insert(node);
    host.terminated.remove(&node);
    host.starting.insert(node);
    Ok(())
}

/// The pipes for the output of a node that has its own in a process that it shares.
fn own_outputs() -> Result<Vec<(Stream, OwnedFd, OwnedFd)>, NotStarted> {
    let pipe = |stream| output_pipe().map(|(read, write)| (stream, read, write));
    [Stream::Stdout, Stream::Stderr]
        .into_iter()
        .map(pipe)
        .collect()
}

/// Starts the host of a process. The outer error is one that is retried.
fn start_host(shell: &mut Shell, process: &str) -> Result<Result<usize, NotStarted>, KeeperError> {
    let (ours, theirs) =
        Seqpacket::pair().map_err(retryable("cannot make the control socket of a host"))?;
    let Some(plan) = host_plan(shell.machine.plan(), process) else {
        return Ok(Err(format!("no node is in the process {process}").into()));
    };
    let started = match shell.start_process(&plan, theirs.as_fd()) {
        Ok(started) => started,
        Err(NotStarted::Short(shortage)) if !shell.has_lost_patience() => {
            let what = "cannot start a host";
            return Err(KeeperError::Shortage { what, shortage });
        }
        Err(error) => return Ok(Err(error)),
    };
    let number = shell.hosts.next;
    shell.hosts.next += 1;
    shell.watch(ours.as_fd(), Token::Host(number))?;
    for (output, stream) in [
        (&started.stdout, Stream::Stdout),
        (&started.stderr, Stream::Stderr),
    ] {
        shell.watch(output.as_fd(), Token::HostOutput(number, stream))?;
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
        starting: BTreeSet::new(),
        terminated: BTreeSet::new(),
        last: None,
        kill_reason: None,
    };
    shell.hosts.running.insert(number, host);
    Ok(Ok(number))
}

pub fn receive(shell: &mut Shell, number: usize) {
    let Some(host) = shell.hosts.running.get_mut(&number) else {
        return;
    };
    for message in host.slot.receive::<Message>(&mut shell.buffer) {
        match message {
            Ok(Message::Running { node, thread }) => announce(shell, number, &node, thread),
            Ok(Message::Ended(ended)) => composed_ended(shell, number, ended),
            Ok(Message::Unknown) => {}
            Err(what) => {
                let why = format!("its host sent an invalid message: {what}");
                kill_host(shell, number, &why);
            }
        }
    }
}

/// The thread of a node runs.
fn announce(shell: &mut Shell, number: usize, id: &str, thread: u32) {
    let plan = shell.machine.plan();
    let Some(host) = shell.hosts.running.get(&number) else {
        return;
    };
    let mut starting = host.starting.iter().copied();
    let Some(node) = starting.find(|&node| plan.nodes[node].id == id) else {
        return;
    };
    let is_shared = only_node_of(shell, &host.name).is_none();
    report_start(shell, number, node, is_shared.then_some(thread));
}

/// Reports the start of a node, if that has not been done.
fn report_start(shell: &mut Shell, number: usize, node: usize, thread: Option<u32>) {
    let Some(host) = shell.hosts.running.get_mut(&number) else {
        return;
    };
    if host.starting.remove(&node) {
        let pid = host.pid.as_raw_pid().unsigned_abs();
        shell.events.push_back(Event::Started { node, pid, thread });
    }
}

/// A node has ended in a host that runs. The end of the last one counts when the process is
/// gone.
fn composed_ended(shell: &mut Shell, number: usize, ended: Ended) {
    let Some(host) = shell.hosts.running.get_mut(&number) else {
        return;
    };
    let plan = shell.machine.plan();
    let mut nodes = host.nodes.iter().copied();
    let Some(node) = nodes.find(|&node| plan.nodes[node].id == ended.node) else {
        return;
    };
    // One without a thread has not reported its start.
    report_start(shell, number, node, None);
    let Some(host) = shell.hosts.running.get_mut(&number) else {
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
    node_ended(
        shell,
        node,
        End::Code(ended.code),
        reason(&ended),
        stderr_tail,
    );
}

fn node_ended(
    shell: &mut Shell,
    node: usize,
    end: End,
    reason: Option<String>,
    stderr_tail: Vec<String>,
) {
    // It may have sent Goodbye.
    shell.receive_from_node(node);
    outputs::drain(shell, node);
    let own_tail = shell.slots[node].end();
    shell.events.push_back(Event::Ended {
        node,
        end,
        reason,
        stderr_tail: match own_tail.is_empty() {
            true => stderr_tail,
            false => own_tail,
        },
    });
}

/// The process of a host has ended, and with it all nodes that ran there.
pub fn process_ended(shell: &mut Shell, number: usize, pid: Pid) {
    receive(shell, number);
    let Some(name) = shell.hosts.running.get(&number).map(|host| &host.name) else {
        return;
    };
    let name = name.clone();
    let only = only_node_of(shell, &name);
    shell.kill_leftovers(&name, only, pid);
    let end = descendants::reap(pid);
    for stream in [Stream::Stdout, Stream::Stderr] {
        drain_output(shell, number, stream);
    }
    let starting = shell.hosts.running.get(&number);
    let starting = starting.map(|host| host.starting.clone());
    for node in starting.unwrap_or_default() {
        report_start(shell, number, node, None);
    }
    let (Some(mut host), Some(end)) = (shell.hosts.running.remove(&number), end) else {
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
        node_ended(shell, node, end, reason, stderr_tail.clone());
    }
    let is_shared = only.is_none();
    for node in host.nodes {
        let reason = match (&host.kill_reason, is_shared) {
            (Some(why), _) => Some(why.clone()),
            (None, true) => Some(format!("its process `{name}` {}", past(end))),
            (None, false) => crash::reason(end, pid, &shell.machine.plan().nodes[node].id),
        };
        // A process that ends under its nodes has not succeeded, whatever its code.
        let end = match end {
            End::Code(0) => End::Code(1),
            end => end,
        };
        node_ended(shell, node, end, reason, stderr_tail.clone());
    }
}

/// Signals a node in a host. A signal reaches all nodes of the process.
pub fn signal(shell: &mut Shell, node: usize, signal: Signal) {
    let Some(number) = shell.hosts.of_node(node) else {
        return;
    };
    let Some(host) = shell.hosts.running.get_mut(&number) else {
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
            let id = shell.machine.plan().nodes[node].id.clone();
            kill_host(shell, number, &format!("`{id}` had to be killed"));
        }
        Signal::Stacks if inspect::catches(pid, STACKS_SIGNAL) => {
            let _ = descendants::signal(pid, STACKS_SIGNAL);
        }
        Signal::Stacks => {}
    }
}

/// Kills the process of a host, and so all its nodes.
fn kill_host(shell: &mut Shell, number: usize, why: &str) {
    let Some(host) = shell.hosts.running.get_mut(&number) else {
        return;
    };
    let (name, pid) = (host.name.clone(), host.pid);
    let is_first = host.kill_reason.is_none();
    let plan = shell.machine.plan();
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
        shell.log(None, Level::Warn, "keeper", text);
    }
    let only = only_node_of(shell, &name);
    shell.kill_group(&name, only);
    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
}

pub fn read_output(shell: &mut Shell, number: usize, stream: Stream) {
    let now = shell.now();
    let host = shell.hosts.running.get_mut(&number);
    let lines = host.map(|host| host.slot.read(stream, now));
    let lines = lines.unwrap_or_default();
    log_lines(shell, number, stream, lines);
}

fn drain_output(shell: &mut Shell, number: usize, stream: Stream) {
    let now = shell.now();
    let host = shell.hosts.running.get_mut(&number);
    let lines = host.map(|host| host.slot.drain(stream, now));
    let lines = lines.unwrap_or_default();
    log_lines(shell, number, stream, lines);
}

/// Logs the output of a process under its name. Several nodes may share it, and a line does not
/// name its node.
fn log_lines(shell: &mut Shell, number: usize, stream: Stream, lines: Vec<String>) {
    let Some(host) = shell.hosts.running.get(&number) else {
        return;
    };
    let name = host.name.clone();
    let logged = shell.hosts.logged.iter().position(|known| *known == name);
    let only = only_node_of(shell, &name);
    for line in lines {
        let level = lines::guess_level(&line);
        match (logged, only) {
            (Some(at), _) => {
                let file = shell.own_nodes + 1 + at;
                shell.log_as(name.clone(), file, level, stream.name(), line);
            }
            (None, only) => shell.log(only, level, stream.name(), line),
        }
    }
}

/// The node of a process that it does not share.
fn only_node_of(shell: &Shell, process: &str) -> Option<usize> {
    let nodes = shell.machine.plan().nodes.iter();
    let mut own = nodes
        .enumerate()
        .filter(|(_, node)| node.host() == Some(process))
        .map(|(at, _)| at);
    own.next().filter(|_| own.next().is_none())
}

/// The process of a host, as that of a node: its nodes have the same environment and folder.
fn host_plan(plan: &Plan, process: &str) -> Option<NodePlan> {
    let mut nodes = plan.nodes.iter();
    let first = nodes.find(|node| node.host() == Some(process))?;
    Some(NodePlan {
        types: Default::default(),
        id: process.to_owned(),
        program: first.program.clone(),
        settings: NodeSettings {
            process: first.settings.process.clone(),
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
