//! The serving side of requests.

use super::goal_state::{CancelCause, GoalState, WITHIN_KEY};
use crate::core::Core;
use crate::diagnostics::emit;
use crate::sample::Sample;
use crate::sending::{Envelope, Publisher};
use nervure_message::{Encode, Header, JsonSample, Metadata, Value};
use nervure_protocol::keeper_to_node::Call;
use nervure_protocol::wiring::ServiceSpec;
use nervure_shm::{SendError, Wait};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The metadata key under which an answer carries the reason of a failure.
const ERROR_KEY: &str = "nervure.error";

/// The metadata key of an answer by the daemon in place of a service on another machine: the reason, or
/// empty if the service's node does not run.
pub(super) const UNREACHED_KEY: &str = "nervure.unreached";

/// A request of another node, to be answered by this one; or a goal of an action, for
/// [`Event::Goal`](super::Event::Goal) and [`Event::Cancel`](super::Event::Cancel). If it is dropped
/// without an answer, the caller is notified.
#[derive(Clone)]
pub struct Request {
    sample: Sample,
    pending: Arc<Pending>,
}

/// The answer that a request waits for. All clones and copies of the request share it.
pub(super) struct Pending {
    service: Arc<str>,
    client: String,
    /// The request's number, which the answer repeats.
    correlation_id: u64,
    publisher: Publisher,
    is_answered: AtomicBool,
    goal: Option<Goal>,
}

/// The part of a request that goals of actions have.
struct Goal {
    number: u64,
    feedback: Publisher,
    /// The number that feedback carries.
    feedback_id: u64,
    cancel: OnceLock<CancelCause>,
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
    /// Feedback and cancellation are for goals of actions.
    #[error("{service} is a service, and a request to it no goal: declare it in `actions`")]
    NoGoal {
        /// The service's name.
        service: String,
    },
    /// The answer could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl Request {
    /// A request to a service of this node by a client, both by their indices. `goal` is the number of a
    /// goal of an action.
    pub(super) fn received(
        core: &Arc<Core>,
        service: usize,
        client: usize,
        sample: Sample,
        goal: Option<u64>,
    ) -> Option<Self> {
        let spec = &core.welcome.services[service];
        let client = &spec.clients[client];
        let ends = (client.output, client.feedback);
        let caller = Caller {
            client: &client.node,
            correlation_id: sample.header().correlation_id,
        };
        let pending = Pending::new(core, spec, &caller, ends, goal)?;
        Some(Self {
            sample,
            pending: Arc::new(pending),
        })
    }

    /// A request of a tool to a service of this node.
    pub(super) fn of_tool(core: &Arc<Core>, call: &Call, goal: Option<u64>) -> Option<Self> {
        let spec = core.welcome.services.get(call.service as usize)?;
        let caller = Caller {
            client: &call.client,
            correlation_id: call.correlation_id,
        };
        let pending = Pending::new(core, spec, &caller, (spec.tools?, spec.tools), goal)?;
        let header = Header {
            correlation_id: call.correlation_id,
            ..Header::default()
        };
        let mut metadata = Metadata::new();
        if let Some(nanos) = call.within_nanos {
            metadata.insert(WITHIN_KEY, nanos as f64 / 1e9);
        }
        match core.sample_of(&call.value, &metadata, header) {
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

    /// The request to cancel a goal, once for each goal.
    pub(super) fn cancellation(pending: Arc<Pending>, cause: CancelCause) -> Option<Self> {
        pending.goal.as_ref()?.cancel.set(cause).ok()?;
        let header = Header {
            correlation_id: pending.correlation_id,
            ..Header::default()
        };
        let nothing = JsonSample::new(&serde_json::Value::Null).ok()?;
        let sample = Sample::local(&nothing, &Metadata::new(), header, None).ok()?;
        let request = Self { sample, pending };
        request.report_state(GoalState::Canceling);
        Some(request)
    }

    pub(super) fn downgrade(&self) -> Weak<Pending> {
        Arc::downgrade(&self.pending)
    }

    /// For a goal of an action, its number in this process, from 1. [`Event::Cancel`](super::Event::Cancel)
    /// has the number of the goal that it cancels.
    pub fn goal(&self) -> Option<u64> {
        Some(self.pending.goal.as_ref()?.number)
    }

    /// Why the goal is to be cancelled, if it is. It may still be answered with a result.
    pub fn cancel_cause(&self) -> Option<CancelCause> {
        self.pending.goal.as_ref()?.cancel.get().copied()
    }

    /// Sends feedback on a goal to its client. A client that takes it slowly misses the oldest.
    ///
    /// # Errors
    /// [`ReplyError::NoGoal`] for a request to a service, [`ReplyError::Twice`] after the result, and
    /// [`ReplyError::Send`] if the value cannot be sent.
    pub fn update<V: Encode + ?Sized>(&self, value: &V) -> Result<(), ReplyError> {
        self.update_with(|publisher, envelope| {
            publisher.send_with(value, &envelope, Wait::Never)?;
            Ok(())
        })
    }

    pub(crate) fn update_with<E: From<ReplyError>>(
        &self,
        send: impl FnOnce(&Publisher, Envelope<'static>) -> Result<(), E>,
    ) -> Result<(), E> {
        let goal = self.expect_goal()?;
        if self.pending.is_answered() {
            return Err(self.twice().into());
        }
        let envelope = Envelope::new().correlation_id(goal.feedback_id);
        send(&goal.feedback, envelope)
    }

    /// Ends a goal as cancelled.
    ///
    /// # Errors
    /// As [`Request::update`].
    pub fn canceled(&self) -> Result<(), ReplyError> {
        self.expect_goal()?;
        let metadata = GoalState::Canceled.metadata();
        self.reply_with(|publisher, envelope| {
            publisher.send_with(&false, &envelope.metadata(&metadata), Wait::Never)?;
            Ok(())
        })
    }

    /// Reports a change of state to the client. One that this does not reach sees the next.
    pub(super) fn report_state(&self, state: GoalState) {
        let metadata = state.metadata();
        let sent = self.update_with(|publisher, envelope| {
            publisher.send_with(&false, &envelope.metadata(&metadata), Wait::Never)?;
            Ok::<_, ReplyError>(())
        });
        if let Err(error) = sent {
            emit!(debug, %error, %state, "the state of a goal is not reported");
        }
    }

    fn expect_goal(&self) -> Result<&Goal, ReplyError> {
        self.pending
            .goal
            .as_ref()
            .ok_or_else(|| ReplyError::NoGoal {
                service: self.service().to_owned(),
            })
    }

    fn twice(&self) -> ReplyError {
        ReplyError::Twice {
            service: self.service().to_owned(),
            client: self.client().to_owned(),
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
            return Err(self.twice().into());
        }
        let sent = send(&self.pending.publisher, self.pending.envelope());
        if sent.is_err() {
            // Another answer may be sent in its place.
            self.pending.is_answered.store(false, Ordering::SeqCst);
        }
        sent
    }
}

/// The sender of a request, and its number there.
struct Caller<'a> {
    client: &'a str,
    correlation_id: u64,
}

impl Pending {
    /// The answer to a request, by the outputs of these indices for the answer and for feedback.
    fn new(
        core: &Arc<Core>,
        service: &ServiceSpec,
        caller: &Caller<'_>,
        (answer, feedback): (u32, Option<u32>),
        goal: Option<u64>,
    ) -> Option<Self> {
        let publisher = |output: u32| {
            let output = core.outputs.get(output as usize)?.clone();
            Some(Publisher::new(output, core.clone(), None))
        };
        let goal = match goal {
            Some(number) => Some(Goal {
                number,
                feedback: publisher(feedback?)?,
                feedback_id: match service.tools == Some(answer) {
                    true => feedback_to_tool(caller.correlation_id),
                    false => caller.correlation_id,
                },
                cancel: OnceLock::new(),
            }),
            None => None,
        };
        Some(Self {
            service: Arc::from(service.name.as_str()),
            client: caller.client.to_owned(),
            correlation_id: caller.correlation_id,
            publisher: publisher(answer)?,
            is_answered: AtomicBool::new(false),
            goal,
        })
    }

    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::SeqCst)
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

/// The number of feedback to a tool: on the output for tools it stands beside the results.
pub(crate) fn feedback_to_tool(request: u64) -> u64 {
    !request
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

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered() && !self.publisher.is_forked() {
            let reason = "it dropped the request unanswered";
            // A caller that this does not reach has a timeout of its own.
            let _ = send_failure(&self.publisher, &self.envelope(), reason);
        }
    }
}
