//! The serving side of requests.

use crate::core::Core;
use crate::diagnostics::emit;
use crate::sample::Sample;
use crate::sending::{Envelope, Publisher};
use nervure_message::{Encode, Header, Metadata, Value};
use nervure_protocol::keeper_to_node::Call;
use nervure_protocol::wiring::ServiceSpec;
use nervure_shm::{SendError, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The metadata key under which an answer carries the reason of a failure.
const ERROR_KEY: &str = "nervure.error";

/// The metadata key of an answer by the daemon in place of a service on another machine: the reason, or
/// empty if the service's node does not run.
pub(super) const UNREACHED_KEY: &str = "nervure.unreached";

/// A request of another node, to be answered by this one. If it is dropped without an answer, the
/// caller is notified.
#[derive(Clone)]
pub struct Request {
    sample: Sample,
    pending: Arc<PendingAnswer>,
}

/// The answer that a request waits for. All clones and copies of the request share it.
struct PendingAnswer {
    service: Arc<str>,
    client: String,
    /// The request's number, which the answer repeats.
    correlation_id: u64,
    publisher: Publisher,
    is_answered: AtomicBool,
}

/// Why an answer was not sent.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The request already has an answer.
    #[error("the request of {client} to {service} was answered already")]
    Twice {
        /// The service's name.
        service: String,
        /// The id of the node that sent the request.
        client: String,
    },
    /// The answer could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Request {
    /// A request to a service of this node by a client, both by their indices.
    pub(super) fn received(
        core: &Arc<Core>,
        service: usize,
        client: usize,
        sample: Sample,
    ) -> Option<Self> {
        let spec = &core.welcome.services[service];
        let client = &spec.clients[client];
        let id = sample.header().correlation_id;
        let pending = PendingAnswer::new(core, spec, &client.node, client.output, id)?;
        Some(Self {
            sample,
            pending: Arc::new(pending),
        })
    }

    /// A request of a tool to a service of this node.
    pub(super) fn of_tool(core: &Arc<Core>, call: &Call) -> Option<Self> {
        let spec = core.welcome.services.get(call.service as usize)?;
        let id = call.correlation_id;
        let pending = PendingAnswer::new(core, spec, &call.client, spec.tools?, id)?;
        let header = Header {
            correlation_id: id,
            ..Header::default()
        };
        match core.sample_of(&call.value, &Metadata::default(), header) {
            Ok(sample) => Some(Self {
                sample: Sample::new(sample),
                pending: Arc::new(pending),
            }),
            Err(reason) => {
                pending.is_answered.store(true, Ordering::SeqCst);
                let sent = send_failure(&pending.publisher, &pending.envelope(), &reason);
                if let Err(error) = sent {
                    emit!(warn, %error, %reason, "a request of a tool has no answer");
                }
                None
            }
        }
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        &self.pending.service
    }

    /// The id of the node that sent the request.
    pub fn client(&self) -> &str {
        &self.pending.client
    }

    /// The value of the request.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// The same request with its value in private memory, so that it holds no block of the caller:
    /// for a request that is answered later. It can be answered through either, once.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self {
            sample: self.sample.copied(),
            pending: self.pending.clone(),
        }
    }

    /// Sends the answer. It is no error if the caller has ended or no longer waits.
    ///
    /// # Errors
    /// [`ReplyError::Twice`] for a second answer, [`ReplyError::Send`] if the value cannot be sent.
    pub fn reply<V: Encode + ?Sized>(&self, value: &V) -> Result<(), ReplyError> {
        self.reply_with(|publisher, envelope| {
            publisher.send_with(value, &envelope, Wait::Never)?;
            Ok(())
        })
    }

    /// Reports to the caller that the request failed, and why.
    ///
    /// # Errors
    /// As [`Request::reply`].
    pub fn fail(&self, reason: &str) -> Result<(), ReplyError> {
        self.reply_with(|publisher, envelope| {
            send_failure(publisher, &envelope, reason)?;
            Ok(())
        })
    }

    pub(crate) fn reply_with<E: From<ReplyError>>(
        &self,
        send: impl FnOnce(&Publisher, Envelope<'static>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.pending.is_answered.swap(true, Ordering::SeqCst) {
            let (service, client) = (self.service().to_owned(), self.client().to_owned());
            return Err(ReplyError::Twice { service, client }.into());
        }
        let sent = send(&self.pending.publisher, self.pending.envelope());
        if sent.is_err() {
            // Another answer may be sent in its place.
            self.pending.is_answered.store(false, Ordering::SeqCst);
        }
        sent
    }
}

impl PendingAnswer {
    /// The answer to the request `correlation_id` of a client, by the output of that index.
    fn new(
        core: &Arc<Core>,
        service: &ServiceSpec,
        client: &str,
        output: u32,
        correlation_id: u64,
    ) -> Option<Self> {
        let output = core.outputs.get(output as usize)?.clone();
        Some(Self {
            service: Arc::from(service.name.as_str()),
            client: client.to_owned(),
            correlation_id,
            publisher: Publisher::new(output, core.clone(), None),
            is_answered: AtomicBool::new(false),
        })
    }

    fn envelope(&self) -> Envelope<'static> {
        Envelope::new().correlation_id(self.correlation_id)
    }
}

fn send_failure(
    publisher: &Publisher,
    envelope: &Envelope<'_>,
    reason: &str,
) -> Result<(), SendError> {
    let metadata: Metadata = [(ERROR_KEY, reason)].into_iter().collect();
    let envelope = envelope.clone().metadata(&metadata);
    publisher.send_with(&false, &envelope, Wait::Never)?;
    Ok(())
}

/// The reason of a failure, if the answer is one.
pub(crate) fn failure_of(answer: &Sample) -> Option<String> {
    let metadata = answer.metadata().unwrap_or_default();
    match metadata.get(ERROR_KEY) {
        Some(Value::Text(reason)) => Some(reason.clone()),
        _ => None,
    }
}

/// Answers a request in place of its service, which cannot be reached. Without a reason its node does
/// not run, and has not executed the request.
pub(crate) fn send_unreached(
    publisher: &Publisher,
    correlation_id: u64,
    reason: Option<&str>,
) -> Result<(), SendError> {
    let metadata: Metadata = [(UNREACHED_KEY, reason.unwrap_or_default())]
        .into_iter()
        .collect();
    let envelope = Envelope::new()
        .correlation_id(correlation_id)
        .metadata(&metadata);
    publisher.send_with(&false, &envelope, Wait::Never)?;
    Ok(())
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("service", &self.service())
            .field("client", &self.client())
            .finish_non_exhaustive()
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if !self.is_answered.load(Ordering::SeqCst) && !self.publisher.is_forked() {
            let reason = "it dropped the request unanswered";
            // A caller that this does not reach has a timeout of its own.
            let _ = send_failure(&self.publisher, &self.envelope(), reason);
        }
    }
}
