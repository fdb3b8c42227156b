//! Sends the samples of a topic to a machine, and removes each from its producer's queue once it is
//! confirmed: see [`crate::lossless`].

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use nervure_dataflow::Stream;
use nervure_link::sender::SendError as LinkSendError;
use nervure_link::shell::{OutgoingStream, StreamError};
use nervure_node::binding::confirm;
use nervure_node::{Sample, SampleError, monotonic_nanos, remote};

use crate::arrivals::{Arrivals, Taker};
use crate::bridge::Bridge;
use crate::crossing::{Crossing, Failures, spawn};
use crate::lossless::{Confirmation, Place, Unconfirmed};
use crate::sender::{REOPEN, Way};
use crate::totals::Counted;

/// The sender of a topic.
pub(crate) struct ConfirmedSender<'b> {
    way: Way<'b>,
    spec: &'b Stream,
    stream: Option<OutgoingStream>,
    /// The message that a full stream did not take, and its place.
    next: Option<(Place, Bytes)>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    unsent: u64,
    failures: Failures,
    pub is_closed: bool,
}

/// State shared with the thread that receives the confirmations.
#[derive(Debug)]
struct Shared {
    samples: Mutex<Samples>,
    is_done: AtomicBool,
}

#[derive(Debug)]
struct Samples {
    unconfirmed: Unconfirmed<Sample>,
    confirmed: u64,
    /// Another attempt has begun.
    has_news: bool,
    /// No sample follows.
    is_ending: bool,
    /// The stand-in leaves when all samples are confirmed.
    is_awaited: bool,
    /// The receiver publishes nothing more: its dataflow stops, too.
    is_receiver_gone: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'b> ConfirmedSender<'b> {
    pub fn new(way: Way<'b>, spec: &'b Stream) -> Self {
        let samples = Samples {
            // The clock goes on, so that the numbers are higher than those of the last daemon.
            unconfirmed: Unconfirmed::new(monotonic_nanos()),
            confirmed: 0,
            has_news: false,
            is_ending: false,
            is_awaited: false,
            is_receiver_gone: false,
        };
        let shared = Arc::new(Shared {
            samples: Mutex::new(samples),
            is_done: AtomicBool::new(false),
        });
        let confirmations = Confirmations {
            bridge: Arc::clone(way.bridge),
            crossing: Arc::clone(way.crossing),
            machine: way.machine.to_owned(),
            topic: spec.topic.clone(),
            shared: Arc::clone(&shared),
            waker: way.waker.clone(),
        };
        Self {
            way,
            spec,
            stream: None,
            next: None,
            thread: Some(spawn(move || confirmations.receive())),
            shared,
            unsent: 0,
            failures: Failures::default(),
            is_closed: false,
        }
    }

    /// Takes a sample of the stand-in's queue. It stays there until it is confirmed.
    pub fn take(&mut self, sample: Sample) {
        let origin = sample.header().origin();
        self.shared.lock().unconfirmed.push(origin, sample);
        self.count();
    }

    /// Notes that no sample follows.
    pub fn end(&mut self) {
        self.shared.lock().is_ending = true;
    }

    /// Has the waker called at each confirmation from now on.
    pub fn await_all(&self) {
        self.shared.lock().is_awaited = true;
    }

    /// Whether the topic has ended, and all of its samples are confirmed.
    pub fn has_ended(&self) -> bool {
        let samples = self.shared.lock();
        samples.is_ending && samples.unconfirmed.is_empty()
    }

    /// Whether there is more to do than after the last call of [`Self::send`].
    pub fn has_news(&self) -> bool {
        !self.is_closed && (self.shared.lock().has_news || self.has_ended())
    }

    /// Whether nothing is left to wait for: all samples are confirmed or, when the dataflow stops, no
    /// further ones will be.
    pub fn is_done(&self, is_stopping: bool) -> bool {
        let samples = self.shared.lock();
        samples.unconfirmed.is_empty() || is_stopping && samples.is_receiver_gone
    }

    /// Sends samples while the link has room: the waker is called when it has room again. Returns when to
    /// call again, if the waker may not be called before.
    pub fn send(&mut self) -> Option<Instant> {
        if self.way.bridge.is_excluded(self.way.machine) {
            self.give_up();
            return None;
        }
        if std::mem::take(&mut self.shared.lock().has_news) {
            // The rest of the last attempt is of no use to the receiver.
            self.stream = None;
        }
        loop {
            let shared = Arc::clone(&self.shared);
            let mut samples = shared.lock();
            if self.stream.is_none() {
                samples.unconfirmed.begin_again();
                self.stream = self.way.open(self.spec);
            }
            let (place, sample) = samples.unconfirmed.to_send()?;
            let stream = self.stream.as_ref()?;
            let known = self.next.take().filter(|next| next.0 == place);
            let encoded = known.map_or_else(|| self.encode(place, sample), |next| Ok(next.1));
            let sent = match &encoded {
                Ok(message) => {
                    let context = Context::from_waker(self.way.waker);
                    stream.poll_send(&context, message.clone())
                }
                Err(error) => {
                    self.leave_out(&mut samples, error);
                    continue;
                }
            };
            match sent {
                Poll::Ready(Ok(())) => samples.unconfirmed.note_sent(),
                Poll::Pending => {
                    self.next = encoded.ok().map(|message| (place, message));
                    return None;
                }
                Poll::Ready(Err(StreamError::Send(error @ LinkSendError::TooLong { .. }))) => {
                    self.leave_out(&mut samples, &error);
                }
                // The session is gone, or the peer had no memory for the stream: open it again.
                Poll::Ready(Err(_)) => {
                    self.stream = None;
                    return Some(Instant::now() + REOPEN);
                }
            }
        }
    }

    fn encode(&self, place: Place, sample: &Sample) -> Result<Bytes, SampleError> {
        let published = self.way.bridge.clock().time(sample.header().publish_mono);
        remote::encode(sample, published, &place.encode()).map(Bytes::from)
    }

    /// Leaves out the next sample, which cannot be sent.
    fn leave_out(&mut self, samples: &mut Samples, error: &dyn std::fmt::Display) {
        samples
            .unconfirmed
            .leave_out()
            .into_iter()
            .for_each(confirm);
        let Way {
            crossing, machine, ..
        } = self.way;
        self.failures.add(&self.spec.topic, machine, error);
        let failed = self.failures.count;
        crossing.count(&self.spec.topic, machine, |counted| {
            counted.failed = failed;
        });
    }

    /// Drops all samples: the machine is no peer any more.
    fn give_up(&mut self) {
        let mut samples = self.shared.lock();
        let left = samples.unconfirmed.clear();
        self.unsent += left.len() as u64;
        left.into_iter().for_each(confirm);
        drop(samples);
        self.count();
    }

    fn count(&self) {
        let (samples, unsent) = (self.shared.lock(), self.unsent);
        let Way {
            crossing, machine, ..
        } = self.way;
        crossing.count(&self.spec.topic, machine, |counted| {
            counted.unsent = unsent;
            samples.note(counted);
        });
    }
}

impl Samples {
    fn note(&self, counted: &mut Counted) {
        let held = self.unconfirmed.len() as u64;
        counted.not_taken = held;
        counted.link.delivered = self.confirmed;
        counted.link.accepted = self.confirmed + held;
    }
}

impl Drop for ConfirmedSender<'_> {
    fn drop(&mut self) {
        self.shared.is_done.store(true, Ordering::SeqCst);
        self.way.bridge.on_change();
        // The panic hook has reported a panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Receives the confirmations of a topic.
struct Confirmations {
    bridge: Arc<Bridge>,
    crossing: Arc<Crossing>,
    machine: String,
    topic: String,
    shared: Arc<Shared>,
    /// Ends the wait of the stand-in for its events.
    waker: Waker,
}

impl Confirmations {
    fn receive(mut self) {
        let (bridge, crossing) = (Arc::clone(&self.bridge), Arc::clone(&self.crossing));
        let (machine, shared) = (self.machine.clone(), Arc::clone(&self.shared));
        let name = crossing.confirmations_name(&self.topic);
        let arrivals = Arrivals {
            bridge: &bridge,
            machine: &machine,
            name: &name,
        };
        let is_over = || crossing.is_over() || shared.is_done.load(Ordering::SeqCst);
        let _ = arrivals.receive(is_over, || false, &mut self);
        // The machine is no peer any more: ends the wait for its confirmations.
        self.waker.wake_by_ref();
    }
}

impl Taker for Confirmations {
    fn take(&mut self, payload: &[u8]) -> ControlFlow<()> {
        let Some(confirmation) = Confirmation::decode(payload) else {
            let (topic, machine) = (&self.topic, &self.machine);
            tracing::warn!("a confirmation of {topic} from {machine} cannot be read");
            return ControlFlow::Continue(());
        };
        let mut samples = self.shared.lock();
        let (published, begins_again) = samples.unconfirmed.confirm(confirmation);
        samples.confirmed += published.len() as u64;
        // Under the lock, so that they leave in the order of the queue.
        published.into_iter().for_each(confirm);
        samples.has_news |= begins_again;
        samples.is_receiver_gone = confirmation.is_leaving;
        self.crossing
            .count(&self.topic, &self.machine, |counted| samples.note(counted));
        if samples.has_news || samples.is_ending || samples.is_awaited {
            self.waker.wake_by_ref();
        }
        ControlFlow::Continue(())
    }
}
