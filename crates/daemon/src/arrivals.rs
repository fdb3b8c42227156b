//! Receives the messages of a stream, over all sessions with the machine that sends them.

use std::ops::ControlFlow;

use nervure_link::shell::IncomingStream;

use crate::bridge::{Bridge, Watching};
use crate::threads::unpark_this_thread;

/// A stream of a machine.
pub(crate) struct Arrivals<'a> {
    pub bridge: &'a Bridge,
    pub machine: &'a str,
    pub name: &'a str,
}

/// Handles the messages of a stream.
pub(crate) trait Taker {
    /// Handles a message. A break ends the stream here.
    fn take(&mut self, payload: &[u8]) -> ControlFlow<()>;

    /// Handles a change on the links, such as a connection.
    fn on_change(&mut self) {}
}

impl Arrivals<'_> {
    /// Receives messages until the machine is no peer any more, or until `is_closed` and all messages that
    /// had arrived before are taken. Breaks if the taker does, and when `is_over`, which is checked after
    /// each change.
    pub fn receive(
        &self,
        is_over: impl Fn() -> bool,
        is_closed: impl Fn() -> bool,
        taker: &mut impl Taker,
    ) -> ControlFlow<()> {
        let bridge = self.bridge;
        let mut current: Option<IncomingStream> = None;
        let _watching = Watching::begin(bridge, &unpark_this_thread());
        while !is_over() {
            if bridge.is_excluded(self.machine) {
                return ControlFlow::Continue(());
            }
            let seen = bridge.changes();
            let is_unchanged = || bridge.changes() == seen;
            taker.on_change();
            let is_last = is_closed();
            // Messages of one session come before those of the next.
            if let Some(newer) = bridge.take_arrived(self.machine, self.name) {
                take_all(current.as_ref(), taker)?;
                current = Some(newer);
            }
            if is_last {
                return take_all(current.as_ref(), taker);
            }
            let Some(stream) = &current else {
                while is_unchanged() && !is_over() {
                    std::thread::park();
                }
                continue;
            };
            while let Some(sample) = stream.receive_while(is_unchanged) {
                taker.take(&sample.payload)?;
            }
            if stream.has_ended() {
                current = None;
            }
        }
        if let Some(stream) = current {
            bridge.put_back(self.machine, self.name, stream);
        }
        ControlFlow::Break(())
    }
}

/// Takes the messages that have arrived on a stream.
fn take_all(stream: Option<&IncomingStream>, taker: &mut impl Taker) -> ControlFlow<()> {
    while let Some(sample) = stream.and_then(IncomingStream::try_receive) {
        taker.take(&sample.payload)?;
    }
    ControlFlow::Continue(())
}
