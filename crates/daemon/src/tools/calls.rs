//! Requests to the daemons of other machines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_link::memory::Payload;
use nervure_link::policy::Refusal;
use nervure_link::shell::{IncomingStream, OutgoingStream};
use nervure_protocol::daemon_to_daemon::{Answer, Ask, Cost, Listed, Request, decode_frame};
use nervure_protocol::keeper_to_cli::Refused;

use crate::bridge::Bridge;
use crate::state::random_id;

/// Timeout of a machine's first answer: with a loss of 20 % three repetitions over a path of 200 ms.
pub(super) const ANSWER: Duration = Duration::from_millis(1500);

/// Timeout of a machine that has answered: six of its signs of life.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// A request to another machine, under way.
pub(super) struct Call<'b> {
    bridge: &'b Bridge,
    machine: String,
    asks: OutgoingStream,
    answers: Option<IncomingStream>,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl<'b> Call<'b> {
    /// Sends the request, and waits until the machine answers.
    pub fn begin(bridge: &'b Bridge, machine: &str, request: Request) -> Result<Self, Refused> {
        let key = bridge.key_of(machine).ok_or_else(|| {
            Refused::new(
                format!("there is no machine `{machine}` in the fleet, or it has not reported yet"),
                Some("`nervure machine list` lists the machines"),
            )
        })?;
        let id = random_id().map_err(|error| Refused::new(error.to_string(), None))?;
        let awaited = bridge.await_answers(&id);
        let asks = bridge
            .open_asks(key, &id)
            .ok_or_else(|| unreachable(bridge, machine))?;
        let mut call = Self {
            bridge,
            machine: machine.to_owned(),
            asks,
            answers: None,
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        };
        call.send(&Ask::Request { request })?;
        call.answers = awaited.wait(key, ANSWER);
        match call.answers {
            Some(_) => Ok(call),
            None => Err(unreachable(bridge, machine)),
        }
    }

    /// Sends a message.
    pub fn send(&self, ask: &Ask) -> Result<(), Refused> {
        let bytes =
            nervure_protocol::encode(ask).map_err(|error| Refused::new(error.to_string(), None))?;
        let length = bytes.len() as u64;
        let sent = self.asks.try_send(Bytes::from(bytes));
        sent.map_err(|_| unreachable(self.bridge, &self.machine))?;
        self.sent_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// The next frame. `None` at the end.
    pub fn receive(&self) -> Result<Option<Payload>, Refused> {
        let Some(answers) = &self.answers else {
            return Ok(None);
        };
        match answers.receive(SILENCE) {
            Some(sample) => {
                let length = sample.payload.len() as u64;
                self.received_bytes.fetch_add(length, Ordering::Relaxed);
                Ok(Some(sample.payload))
            }
            None if answers.counters().is_none() => Ok(None),
            None => Err(unreachable(self.bridge, &self.machine)),
        }
    }

    /// The traffic of the call.
    pub fn cost(&self) -> Cost {
        Cost {
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(answers) = self.answers.take() {
            answers.close(Refusal::because("the command has ended"));
        }
    }
}

/// The dataflows of a machine.
pub(super) fn list(bridge: &Bridge, machine: &str) -> Result<Vec<Listed>, Refused> {
    /// More would not fit into the answer to the command.
    const MAX_LISTED: usize = 100;
    let call = Call::begin(bridge, machine, Request::List)?;
    let until = Instant::now() + SILENCE;
    let mut listed = Vec::new();
    while let Some(bytes) = call.receive()? {
        let frame = decode_frame(&bytes).map_err(|error| damaged(machine, &error))?;
        match frame {
            nervure_protocol::daemon_to_daemon::Frame::Answer(answer) => match answer {
                Answer::Dataflow(one) if listed.len() < MAX_LISTED => listed.push(one),
                Answer::Done => return Ok(listed),
                Answer::Refused(refused) => return Err(refused),
                _ => {}
            },
            _ => return Err(damaged(machine, &"a list was expected")),
        }
        if Instant::now() > until {
            break;
        }
    }
    Err(unreachable(bridge, machine))
}

/// The refusal for an answer that cannot be read.
pub(super) fn damaged(machine: &str, error: &dyn std::fmt::Display) -> Refused {
    Refused::new(
        format!("the answer of {machine} cannot be read: {error}"),
        Some("do both machines have the same version of nervure?"),
    )
}

/// The refusal for a machine that does not answer.
pub(super) fn unreachable(bridge: &Bridge, machine: &str) -> Refused {
    let reason = match bridge.silence(machine) {
        Some(silence) if silence >= ANSWER => format!(
            "{machine} cannot be reached: nothing has arrived from it for {:.0} s",
            silence.as_secs_f64()
        ),
        Some(_) => format!("the daemon of {machine} does not answer"),
        None => format!(
            "{machine} cannot be reached: nothing has arrived from it since this daemon has started"
        ),
    };
    Refused::new(
        reason,
        Some("is it on, is its daemon running (`nervure join`), and is its network up?"),
    )
}
