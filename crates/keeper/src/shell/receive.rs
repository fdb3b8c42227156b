//! Input from nodes and from the kernel.

use tracing::{debug, trace};

use super::{composed, crash, event_loop::Shell, outputs, slot::Stream};
use crate::{descendants, machine::Event};

impl Shell {
    pub(super) fn receive_from_node(&mut self, node: usize) {
        // The report of its start is on another connection, and was sent before.
        if let Some(host) = self.hosts.starting(node) {
            composed::receive(self, host);
        }
        for result in self.slots[node].receive(&mut self.buffer) {
            trace!(node, received = ?result, "message of a node");
            self.events.push_back(match result {
                Ok(message) => Event::Message { node, message },
                Err(what) => Event::Misbehaved { node, what },
            });
        }
    }

    pub(super) fn read_output(&mut self, node: usize, stream: Stream) {
        outputs::read(self, node, stream);
    }

    /// Reads the messages of a host, or one of its output streams.
    pub(super) fn serve_host(&mut self, host: usize, stream: Option<Stream>) {
        match stream {
            None => composed::receive(self, host),
            Some(stream) => composed::read_output(self, host, stream),
        }
    }

    /// Reaps children that have ended, with their last messages and output.
    pub(super) fn reap(&mut self) {
        while let Some(pid) = descendants::next_ended() {
            let host = self.hosts.of_process(pid);
            let node = self.nodes_by_pid.remove(&pid);
            if host.is_none() && node.is_none() {
                descendants::reap(pid);
                continue;
            }
            // Before it is reaped: the id of its group may be used again afterwards.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            let Some(node) = node else {
                host.into_iter()
                    .for_each(|host| composed::process_ended(self, host, pid));
                continue;
            };
            let id = self.machine.plan().nodes[node].id.clone();
            self.kill_leftovers(&id, Some(node), pid);
            let Some(end) = descendants::reap(pid) else {
                continue;
            };
            debug!(node, pid = pid.as_raw_pid(), ?end, "process ended");
            self.receive_from_node(node);
            outputs::drain(self, node);
            let stderr_tail = self.slots[node].end();
            self.events.push_back(Event::Ended {
                node,
                end,
                reason: crash::reason(end, pid, &id),
                stderr_tail,
            });
        }
    }
}
