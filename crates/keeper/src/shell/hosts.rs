//! Hosts: the processes in which composed nodes run as threads.
//!
//! A host starts with the first of its nodes, and ends with the last. So a component that runs alone
//! is a process like that of any node, and a restart after the end of all nodes begins afresh.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use nervure_protocol::host_to_keeper::Ended;
use rustix::process::Pid;

use super::slot::Slot;
use crate::plan::Plan;

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
    pub logged: Vec<String>,
    pub running: BTreeMap<usize, Host>,
    pub next: usize,
}

#[derive(Debug)]
pub struct Host {
    /// The name of the process, or the id of its only node.
    pub name: String,
    pub pid: Pid,
    /// Its connection and its output.
    pub slot: Slot,
    /// The nodes that run in it.
    pub nodes: BTreeSet<usize>,
    /// Those of them whose threads have not reported yet.
    pub starting: BTreeSet<usize>,
    /// Those of them that have been asked to end by a signal, which would reach all.
    pub terminated: BTreeSet<usize>,
    /// How the last node ended, while the process is about to.
    pub last: Option<(usize, Ended)>,
    /// Why the keeper kills it.
    pub kill_reason: Option<String>,
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

    /// Sends queued messages without waiting.
    pub fn flush(&mut self, now: Duration) {
        for host in self.running.values_mut() {
            host.slot.flush(now);
        }
    }

    pub fn of_process(&self, pid: Pid) -> Option<usize> {
        let mut running = self.running.iter();
        running
            .find(|(_, host)| host.pid == pid)
            .map(|(&number, _)| number)
    }

    /// The host that takes nodes of that process.
    pub fn open(&self, process: &str) -> Option<usize> {
        let is_open =
            |host: &Host| host.name == process && host.last.is_none() && host.kill_reason.is_none();
        let mut running = self.running.iter();
        running
            .find(|(_, host)| is_open(host) && !host.slot.is_closed())
            .map(|(&number, _)| number)
    }

    pub fn of_node(&self, node: usize) -> Option<usize> {
        let mut running = self.running.iter();
        running
            .find(|(_, host)| {
                host.nodes.contains(&node)
                    || host.last.as_ref().is_some_and(|(last, _)| *last == node)
            })
            .map(|(&number, _)| number)
    }

    /// The host of a node whose thread has not reported yet.
    pub fn starting(&self, node: usize) -> Option<usize> {
        let host = self.of_node(node)?;
        self.running[&host].starting.contains(&node).then_some(host)
    }
}
