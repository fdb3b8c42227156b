//! Carries out each action of the machine.

use std::io;

use nervure_protocol::{
    STACKS_SIGNAL, encode,
    report::{Level, Report},
};
use nervure_shm::Seqpacket;
use rustix::{
    fd::{AsFd, BorrowedFd},
    process::Pid,
};
use tracing::{debug, trace};

use super::{
    composed,
    error::{KeeperError, retryable, system},
    event_loop::Shell,
    inspect,
    process::{self, NotStarted, Started},
    retry::SHORTAGE_TIMEOUT,
    slot::{Slot, Stream},
    token::Token,
};
use crate::{
    descendants,
    machine::{Action, Audience, Descriptor, Event, Signal},
    plan::NodePlan,
};

impl Shell {
    pub(super) fn apply(&mut self, action: Action) -> Result<(), KeeperError> {
        match action {
            Action::Spawn { node } if composed::is_composed(self, node) => {
                composed::spawn(self, node)
            }
            Action::Spawn { node } => self.spawn(node),
            Action::Send {
                node,
                message,
                descriptors,
            } => {
                trace!(node, sent = ?message, "message to a node");
                let bytes = match encode(&message) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        self.events.push_back(Event::Undeliverable {
                            node,
                            why: error.to_string(),
                        });
                        return Ok(());
                    }
                };
                let descriptors: io::Result<Vec<_>> = descriptors
                    .into_iter()
                    .map(|descriptor| self.descriptors.resolve(descriptor))
                    .collect();
                let descriptors =
                    descriptors.map_err(retryable("cannot make the descriptors of a message"))?;
                self.slots[node].send(bytes, descriptors);
                Ok(())
            }
            Action::Report {
                message,
                descriptor,
                audience,
            } => {
                let descriptor =
                    descriptor.map(|descriptor: Descriptor| self.descriptors.resolve(descriptor));
                let descriptor = match descriptor.transpose() {
                    // The guest could not be admitted.
                    Err(_) if audience == Audience::ObserversToo => return Ok(()),
                    // The process that joined could not be admitted: its end follows.
                    Err(_) if is_of_joiner(&self.slots, &message) => None,
                    other => other.map_err(system("cannot make a descriptor for a report"))?,
                };
                let now = self.begin.elapsed();
                self.clients
                    .report(&message, descriptor.as_ref(), audience, now);
                Ok(())
            }
            Action::Reply {
                client,
                message,
                descriptor,
            } => {
                let descriptor = descriptor.map(|descriptor| self.descriptors.resolve(descriptor));
                let descriptor = descriptor
                    .transpose()
                    .map_err(system("cannot make a descriptor for a client"))?;
                self.clients.answer(client, &message, descriptor);
                Ok(())
            }
            Action::Follow { client, watch } => {
                self.clients.follow(client, watch);
                Ok(())
            }
            Action::Admit { client, node } => {
                self.admit(client, node);
                Ok(())
            }
            Action::CloseClient { client } => {
                self.clients.remove(client);
                Ok(())
            }
            Action::CloseGuest { node } => {
                // The last messages, in case the guest still receives.
                self.slots[node].flush(self.begin.elapsed());
                self.slots[node].end();
                self.descriptors.forget_node(node);
                Ok(())
            }
            Action::CloseJoined { node } => {
                self.slots[node].flush(self.begin.elapsed());
                self.slots[node].end();
                Ok(())
            }
            Action::Log { node, level, text } => {
                self.log(node, level, "keeper", text);
                Ok(())
            }
            Action::Ring { node } => {
                self.descriptors.ring(node);
                Ok(())
            }
            Action::SetClock { clock } => {
                self.descriptors.set_clock(clock);
                Ok(())
            }
            Action::SetPaused { is_paused } => {
                self.descriptors.set_paused(is_paused);
                Ok(())
            }
            Action::ReadPulse { node } => {
                let pulse = self
                    .descriptors
                    .pulse(node)
                    .map_err(retryable("cannot map the counters of a node"))?;
                self.events.push_back(Event::Pulse { node, pulse });
                Ok(())
            }
            Action::Examine { node, why } => {
                self.examine(node, &why);
                Ok(())
            }
            Action::Signal { node, signal } if composed::is_composed(self, node) => {
                composed::signal(self, node, signal);
                Ok(())
            }
            Action::Signal { node, signal } => {
                self.signal(node, signal);
                Ok(())
            }
            Action::CreateRegion {
                edge,
                depth,
                blocks,
            } => self
                .descriptors
                .create_region(edge, depth, blocks)
                .map_err(retryable("cannot make the shared memory of an edge")),
            Action::ReleaseRegion { edge } => {
                self.descriptors.release_region(edge);
                Ok(())
            }
            Action::ReleasePair { pair } => {
                self.descriptors.release_pair(pair);
                Ok(())
            }
            Action::Finish => {
                self.is_finished = true;
                Ok(())
            }
        }
    }

    fn spawn(&mut self, node: usize) -> Result<(), KeeperError> {
        self.renew_pages(node)?;
        let (ours, theirs) =
            Seqpacket::pair().map_err(retryable("cannot make the control socket of a node"))?;
        let plan = self.machine.plan().nodes[node].clone();
        match self.start_process(&plan, theirs.as_fd()) {
            Ok(started) => {
                self.watch(ours.as_fd(), Token::Control(node))?;
                self.watch(started.stdout.as_fd(), Token::Output(node, Stream::Stdout))?;
                self.watch(started.stderr.as_fd(), Token::Output(node, Stream::Stderr))?;
                let pid = started.pid;
                let id = &self.machine.plan().nodes[node].id;
                debug!(node, id, pid = pid.as_raw_pid(), "process started");
                self.nodes_by_pid.insert(pid, node);
                self.slots[node].begin(ours, started);
                self.events.push_back(Event::Started {
                    node,
                    pid: pid.as_raw_pid().unsigned_abs(),
                    thread: None,
                });
            }
            Err(NotStarted::Short(shortage)) if !self.has_lost_patience() => {
                let what = "cannot start a node";
                return Err(KeeperError::Shortage { what, shortage });
            }
            Err(error) => {
                // The shortage ends this node, not the keeper.
                self.short_since = None;
                let reason = error.to_string();
                debug!(node, reason, "process not started");
                self.events.push_back(Event::NotStarted { node, reason });
            }
        }
        Ok(())
    }

    /// True when a resource has been short for as long as the keeper retries.
    pub(super) fn has_lost_patience(&self) -> bool {
        let now = self.now();
        self.short_since
            .is_some_and(|since| now.saturating_sub(since) >= SHORTAGE_TIMEOUT)
    }

    /// Starts the process of a node, or of a host, in its control group.
    pub(super) fn start_process(
        &mut self,
        node: &NodePlan,
        control: BorrowedFd<'_>,
    ) -> Result<Started, NotStarted> {
        loop {
            let start = |group| {
                process::start(
                    self.machine.plan(),
                    node,
                    control,
                    self.files,
                    group,
                    &self.key.mark(&node.id),
                )
            };
            let started = match self.groups.as_ref().map(|groups| groups.entry(&node.id)) {
                None => start(None),
                Some(Ok(group)) => start(Some(group.as_fd())),
                Some(Err(error)) => Err(NotStarted::Group(error)),
            };
            match started {
                Err(NotStarted::Group(error)) => self.do_without_groups(&error.to_string()),
                other => return other,
            }
        }
    }

    pub(super) fn do_without_groups(&mut self, why: &str) {
        self.groups = None;
        self.log(
            None,
            Level::Debug,
            "keeper",
            format!("nodes have no control groups of their own: {why}"),
        );
    }

    pub(super) fn renew_pages(&mut self, node: usize) -> Result<(), KeeperError> {
        let (inputs, rows) = (
            self.machine.plan().nodes[node].inputs.len(),
            self.machine.counters_rows(node),
        );
        let gone = self.machine.queues_gone(node);
        self.descriptors
            .renew_node(node, inputs, rows, &gone)
            .map_err(retryable("cannot make the shared memory of a node"))
    }

    fn signal(&mut self, node: usize, signal: Signal) {
        // The process was not reaped: its id, and its group's, cannot belong to another.
        let Some(pid) = self.slots[node].pid() else {
            return;
        };
        debug!(node, pid = pid.as_raw_pid(), ?signal, "signal sent");
        let _ = match signal {
            Signal::Terminate => {
                rustix::process::kill_process_group(pid, rustix::process::Signal::TERM)
            }
            Signal::Kill => {
                self.kill_group(&self.machine.plan().nodes[node].id.clone(), Some(node));
                rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
            }
            // A process without a handler would be killed by it.
            Signal::Stacks if !inspect::catches(pid, STACKS_SIGNAL) => Ok(()),
            Signal::Stacks => descendants::signal(pid, STACKS_SIGNAL),
        };
    }

    /// Kills all processes in the control group of that name, if there is one. `node` is the node
    /// in whose log a failure goes.
    pub(super) fn kill_group(&mut self, id: &str, node: Option<usize>) {
        let Some(groups) = &self.groups else { return };
        if let Err(error) = groups.kill(id) {
            let text = format!("the processes in its control group cannot be killed: {error}");
            self.log(node, Level::Warn, "keeper", text);
        }
    }

    /// Kills the processes that the process `pid` of a node, or of a host without one, has left
    /// behind, also outside its process group.
    pub(super) fn kill_leftovers(&mut self, id: &str, node: Option<usize>, pid: Pid) {
        let outside = match &self.groups {
            Some(groups) => Ok(descendants::count_outside(&groups.members(id), pid)),
            None => descendants::kill_marked(&self.key.mark(id), pid),
        };
        self.kill_group(id, node);
        let text = match outside {
            Ok(0) => return,
            Ok(count) => {
                format!(
                    "killed {count} process(es) outside its process group that it had left behind"
                )
            }
            Err(error) => format!("processes that it has left behind cannot be found: {error}"),
        };
        self.log(node, Level::Warn, "keeper", text);
    }

    /// Logs the states of the threads of a node that hangs.
    fn examine(&mut self, node: usize, why: &str) {
        let Some(pid) = composed::pid_of(self, node) else {
            return;
        };
        self.log(Some(node), Level::Error, "keeper", why.to_owned());
        for line in inspect::threads(pid) {
            self.log(Some(node), Level::Info, "keeper", line);
        }
        if !inspect::catches(pid, STACKS_SIGNAL) {
            let text = "for its stacks, attach to it before its timeout: `gdb -p`, or `gcore` for a core file; \
                        of Python, `py-spy dump --pid`";
            self.log(Some(node), Level::Info, "keeper", text.to_owned());
        }
    }
}

/// True for the report that a process has joined, which the keeper did not start.
fn is_of_joiner(slots: &[Slot], message: &Report) -> bool {
    let Report::NodeStarted(started) = message else {
        return false;
    };
    slots
        .get(started.node as usize)
        .is_some_and(|slot| slot.pid().is_none())
}
