//! Requests and answers between nodes: `services` and `clients` of the dataflow file.
//!
//! A client has an edge for requests and one for answers, for itself. A request carries a number in its header, which its
//! answer repeats; so several can be under way, and answers may come in any order. No more are under way than the queues
//! hold, so that neither can overflow.

use crate::error::UnknownName;
use crate::node::Core;
use crate::publisher::{Envelope, Publisher};
use crate::sample::Sample;
use nervure_message::{Encode, Metadata, Value};
use nervure_protocol::wiring::ClientSpec;
use nervure_shm::{Receipt, SendError, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The metadata key of an answer that says why there is none.
const ERROR: &str = "nervure.error";

/// Requests under way at most, where the file says nothing.
const IN_FLIGHT: u32 = 16;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The node has no such client.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The node that answers is not there, or not yet there again.
    #[error("service {service} is not there: its node does not run")]
    NotRunning {
        /// `node/service`.
        service: String,
    },
    /// The node that answers ended, or was restarted, before it answered. It may have done what was asked for.
    #[error("service {service} ended before it answered")]
    Gone {
        /// `node/service`.
        service: String,
    },
    /// No answer came in time. One that comes later is dropped.
    #[error("service {service} has not answered within {timeout:?}")]
    TimedOut {
        /// `node/service`.
        service: String,
        /// How long the caller waited.
        timeout: Duration,
    },
    /// As many requests are under way as the queue holds.
    #[error("{count} requests to service {service} are under way already, the most")]
    Busy {
        /// `node/service`.
        service: String,
        /// How many.
        count: usize,
    },
    /// The service says that it failed.
    #[error("service {service} failed: {reason}")]
    Failed {
        /// `node/service`.
        service: String,
        /// What it says.
        reason: String,
    },
    /// The dataflow stops.
    #[error("the dataflow stops")]
    Stopped,
    /// The request could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) client: usize,
    id: u64,
}

impl Ticket {
    /// What goes with the request.
    pub fn envelope(self) -> Envelope<'static> {
        Envelope::new().correlation_id(self.id)
    }
}

/// What came of a request.
pub(crate) type Answer = Result<Sample, CallError>;

/// The requests of a node that are under way.
#[derive(Debug)]
pub(crate) struct Calls {
    clients: Vec<Client>,
    last_id: u64,
}

#[derive(Debug)]
struct Client {
    spec: ClientSpec,
    in_flight: usize,
    /// Those that have no answer yet, and whether somebody still waits for it: the place in the queues is taken either
    /// way.
    waiting: Vec<(u64, bool)>,
    answered: Vec<(u64, Answer)>,
}

impl Calls {
    pub(crate) fn new(core: &Core) -> Self {
        let client = |spec: &ClientSpec| {
            let queue = core
                .welcome
                .inputs
                .get(spec.input as usize)
                .and_then(|input| input.queue);
            let in_flight = queue.map_or(IN_FLIGHT, |queue| queue.depth) as usize;
            Client {
                spec: spec.clone(),
                in_flight,
                waiting: Vec::new(),
                answered: Vec::new(),
            }
        };
        Self {
            clients: core.welcome.clients.iter().map(client).collect(),
            last_id: 0,
        }
    }

    /// The client of that name.
    pub(crate) fn find(&self, core: &Core, name: &str) -> Result<usize, CallError> {
        self.clients
            .iter()
            .position(|client| client.spec.name == name)
            .ok_or_else(|| {
                CallError::Unknown(UnknownName {
                    node: core.welcome.node.clone(),
                    kind: "client",
                    name: name.to_owned(),
                    known: self
                        .clients
                        .iter()
                        .map(|client| client.spec.name.clone())
                        .collect(),
                })
            })
    }

    /// The input on which answers to a client come.
    pub(crate) fn input(&self, client: usize) -> u32 {
        self.clients[client].spec.input
    }

    pub(crate) fn service(&self, client: usize) -> &str {
        &self.clients[client].spec.service
    }

    /// A number for a request, and where it goes.
    pub(crate) fn begin(
        &mut self,
        core: &Arc<Core>,
        client: usize,
    ) -> Result<(Ticket, Publisher), CallError> {
        let state = &mut self.clients[client];
        let service = || state.spec.service.clone();
        let count = state.waiting.len() + state.answered.len();
        if count >= state.in_flight {
            return Err(CallError::Busy {
                service: service(),
                count,
            });
        }
        let output = core.outputs.get(state.spec.output as usize).cloned();
        let output = output.ok_or_else(|| CallError::NotRunning { service: service() })?;
        self.last_id += 1;
        state.waiting.push((self.last_id, true));
        Ok((
            Ticket {
                client,
                id: self.last_id,
            },
            Publisher {
                output,
                core: core.clone(),
            },
        ))
    }

    /// The request was sent, or was not.
    pub(crate) fn sent(
        &mut self,
        ticket: Ticket,
        result: Result<Receipt, SendError>,
    ) -> Result<Ticket, CallError> {
        let service = self.service(ticket.client).to_owned();
        let error = match result {
            Ok(Receipt { queued: 1.., .. }) => return Ok(ticket),
            Ok(Receipt { missed: 1.., .. }) => CallError::Busy {
                service,
                count: self.clients[ticket.client].waiting.len(),
            },
            Ok(_) => CallError::NotRunning { service },
            Err(error) => error.into(),
        };
        self.clients[ticket.client]
            .waiting
            .retain(|(id, _)| *id != ticket.id);
        Err(error)
    }

    /// An answer has come. One that nobody waits for is dropped.
    pub(crate) fn answer(&mut self, client: usize, sample: Sample) {
        let state = &mut self.clients[client];
        let id = sample.header().correlation_id;
        let Some(at) = state.waiting.iter().position(|&(waiting, _)| waiting == id) else {
            return;
        };
        let (_, is_wanted) = state.waiting.swap_remove(at);
        if !is_wanted {
            return;
        }
        let error = sample
            .metadata()
            .ok()
            .and_then(|metadata| metadata.get(ERROR).cloned());
        let service = state.spec.service.clone();
        state.answered.push((
            id,
            match error {
                Some(Value::Text(reason)) => Err(CallError::Failed { service, reason }),
                _ => Ok(sample),
            },
        ));
    }

    /// The process that answers is gone, and with it all requests that it had.
    pub(crate) fn server_gone(&mut self, client: usize) {
        let state = &mut self.clients[client];
        for (id, _) in state.waiting.drain(..).filter(|&(_, is_wanted)| is_wanted) {
            let service = state.spec.service.clone();
            state.answered.push((id, Err(CallError::Gone { service })));
        }
    }

    /// The answer, if it has come.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Answer> {
        let answered = &mut self.clients[ticket.client].answered;
        let at = answered.iter().position(|(id, _)| *id == ticket.id)?;
        Some(answered.swap_remove(at).1)
    }

    /// Nobody waits any more.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        let state = &mut self.clients[ticket.client];
        state
            .waiting
            .iter_mut()
            .filter(|(id, _)| *id == ticket.id)
            .for_each(|(_, is_wanted)| *is_wanted = false);
        state.answered.retain(|(id, _)| *id != ticket.id);
    }
}

/// A request that this node is to answer. One that is dropped without an answer tells its caller so.
#[derive(Clone)]
pub struct Request(Arc<Inner>);

struct Inner {
    service: Arc<str>,
    client: String,
    sample: Sample,
    publisher: Publisher,
    is_answered: AtomicBool,
}

/// Why an answer was not sent.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// There was one already.
    #[error("the request of {client} to {service} was answered already")]
    Twice {
        /// The service.
        service: String,
        /// The node that asked.
        client: String,
    },
    /// It could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Request {
    pub(crate) fn new(
        service: Arc<str>,
        client: String,
        sample: Sample,
        publisher: Publisher,
    ) -> Self {
        Self(Arc::new(Inner {
            service,
            client,
            sample,
            publisher,
            is_answered: AtomicBool::new(false),
        }))
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        &self.0.service
    }

    /// The node that asks.
    pub fn client(&self) -> &str {
        &self.0.client
    }

    /// What is asked for.
    pub fn sample(&self) -> &Sample {
        &self.0.sample
    }

    /// Answers. A caller that is gone, or waits no more, is no error.
    ///
    /// # Errors
    /// [`ReplyError::Twice`], and when the value cannot be sent.
    pub fn reply<V: Encode + ?Sized>(&self, value: &V) -> Result<(), ReplyError> {
        let publisher = self.begin_reply()?;
        let sent = publisher.send_with(value, &self.number(), Wait::Never);
        self.end_reply(sent.map(drop))
    }

    /// Tells the caller that there is no answer, and why.
    ///
    /// # Errors
    /// As [`Request::reply`].
    pub fn fail(&self, reason: &str) -> Result<(), ReplyError> {
        let publisher = self.begin_reply()?;
        let metadata: Metadata = [(ERROR, reason)].into_iter().collect();
        let sent = publisher.send_with(&false, &self.number().metadata(&metadata), Wait::Never);
        self.end_reply(sent.map(drop))
    }

    /// For bindings that encode the value themselves: where the answer goes, with [`Request::number`]; then comes
    /// [`Request::end_reply`].
    ///
    /// # Errors
    /// [`ReplyError::Twice`].
    pub fn begin_reply(&self) -> Result<&Publisher, ReplyError> {
        match self.0.is_answered.swap(true, Ordering::SeqCst) {
            false => Ok(&self.0.publisher),
            true => {
                let (service, client) = (self.service().to_owned(), self.client().to_owned());
                Err(ReplyError::Twice { service, client })
            }
        }
    }

    /// What goes with the answer: the number of the request.
    pub fn number(&self) -> Envelope<'static> {
        Envelope::new().correlation_id(self.0.sample.header().correlation_id)
    }

    /// No answer was sent after all, for bindings.
    pub fn take_back_reply(&self) {
        self.0.is_answered.store(false, Ordering::SeqCst);
    }

    /// The answer was sent, or could not be: then another may be.
    ///
    /// # Errors
    /// Why it could not be sent.
    pub fn end_reply(&self, sent: Result<(), SendError>) -> Result<(), ReplyError> {
        if sent.is_err() {
            self.take_back_reply();
        }
        Ok(sent?)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("service", &self.service())
            .field("client", &self.client())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.is_answered.load(Ordering::SeqCst)
            && nervure_shm::check_fork(self.publisher.core.fork_generation()).is_ok()
        {
            let metadata: Metadata = [(ERROR, "it dropped the request unanswered")]
                .into_iter()
                .collect();
            let envelope = Envelope::new().correlation_id(self.sample.header().correlation_id);
            // The caller has a timeout of its own.
            let _ = self
                .publisher
                .send_with(&false, &envelope.metadata(&metadata), Wait::Never);
        }
    }
}
