//! The calling side of requests between nodes: `services` and `clients` of the dataflow file.
//!
//! Each client of a service has its own edge for requests and its own edge for answers. A request
//! carries a number in its header, which its answer repeats. So several requests can be in flight,
//! and answers may arrive in any order. No more requests are in flight than the queues hold, so
//! that neither queue can overflow.

use super::goal_state::GoalState;
use super::request::{UNREACHED_KEY, failure_of};
use crate::core::Core;
use crate::error::UnknownName;
use crate::sample::Sample;
use crate::sending::{Envelope, Publisher};
use nervure_message::Value;
use nervure_protocol::wiring::ClientSpec;
use nervure_shm::{Receipt, SendError, monotonic_nanos};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The limit of requests in flight for a client whose queue has no depth in the file.
const DEFAULT_MAX_IN_FLIGHT: u32 = 16;

/// The reason of [`CallError::Gone`] for a node that has ended.
pub(crate) const ENDED: &str = "ended before it answered";

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The node has no such client.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The service's node has not started, or is being restarted.
    #[error("service {service} is not available: its node does not run")]
    NotRunning {
        /// `node/service`.
        service: String,
    },
    /// The service's node ended or was restarted before it answered, or its machine cannot be
    /// reached. It may have executed the request.
    #[error("service {service} {reason}")]
    Gone {
        /// `node/service`.
        service: String,
        /// What happened, behind the name of the service.
        reason: String,
    },
    /// No answer arrived in time. A later answer is dropped.
    #[error("service {service} has not answered within {timeout:?}")]
    TimedOut {
        /// `node/service`.
        service: String,
        /// Time for which the caller waited.
        timeout: Duration,
    },
    /// The limit of requests in flight is reached.
    #[error("{count} requests to service {service} are in flight already, which is the limit")]
    Busy {
        /// `node/service`.
        service: String,
        /// Requests in flight.
        count: usize,
    },
    /// The goal of an action was cancelled.
    #[error("the goal of {service} was cancelled")]
    Canceled {
        /// `node/action`.
        service: String,
    },
    /// The client is one of a service, which has neither feedback nor cancellation.
    #[error("{service} is a service, not an action: declare it in `actions` of its node")]
    NoAction {
        /// `node/service`.
        service: String,
    },
    /// The service reported a failure.
    #[error("service {service} failed: {reason}")]
    Failed {
        /// `node/service`.
        service: String,
        /// The reason that the service gave.
        reason: String,
    },
    /// The dataflow stops.
    #[error("the dataflow stops")]
    Stopped,
    /// The request could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Identifies a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) client: usize,
    id: u64,
}

impl Ticket {
    pub(crate) fn envelope(self) -> Envelope<'static> {
        Envelope::new().correlation_id(self.id)
    }
}

pub(super) type Answer = Result<Sample, CallError>;

/// The requests of a node that are in flight.
#[derive(Debug)]
pub(super) struct Calls {
    clients: Vec<Client>,
    /// Starts from the time, so that no earlier process of this node has used the next ids: an
    /// answer to a request of an earlier process may still arrive.
    last_id: u64,
}

#[derive(Debug)]
struct Client {
    spec: ClientSpec,
    max_in_flight: usize,
    /// Requests without an answer, and whether the caller still waits. An abandoned request keeps
    /// its place in the queues.
    waiting: Vec<(u64, bool)>,
    answered: Vec<(u64, Answer)>,
    /// Of an action: the goals in flight, and those whose result was not taken.
    goals: Vec<GoalProgress>,
}

/// The progress of a goal.
#[derive(Debug)]
struct GoalProgress {
    id: u64,
    state: GoalState,
    is_cancelled: bool,
    /// The oldest first, at most [`MAX_UPDATES`].
    updates: VecDeque<Sample>,
}

/// Feedback that waits for the program. Each sample holds a block of the action's node.
const MAX_UPDATES: usize = 8;

impl Calls {
    pub(super) fn new(core: &Core) -> Self {
        let client = |spec: &ClientSpec| {
            let input = core.welcome.inputs.get(spec.input as usize);
            let queue = input.and_then(|input| input.queue);
            Client {
                spec: spec.clone(),
                max_in_flight: queue.map_or(DEFAULT_MAX_IN_FLIGHT, |queue| queue.depth) as usize,
                waiting: Vec::new(),
                answered: Vec::new(),
                goals: Vec::new(),
            }
        };
        Self {
            clients: core.welcome.clients.iter().map(client).collect(),
            last_id: monotonic_nanos(),
        }
    }

    /// The index of the client with that name.
    pub(super) fn find(&self, core: &Core, name: &str) -> Result<usize, CallError> {
        let names = || self.clients.iter().map(|client| &client.spec.name);
        names().position(|known| known == name).ok_or_else(|| {
            CallError::Unknown(UnknownName {
                node: core.welcome.node.clone(),
                kind: "client",
                name: name.to_owned(),
                known: names().cloned().collect(),
            })
        })
    }

    /// The input on which a client's answers arrive.
    pub(super) fn input(&self, client: usize) -> u32 {
        self.clients[client].spec.input
    }

    pub(super) fn service(&self, client: usize) -> &str {
        &self.clients[client].spec.service
    }

    pub(super) fn not_running(&self, client: usize) -> CallError {
        CallError::NotRunning {
            service: self.service(client).to_owned(),
        }
    }

    /// Registers a request. Returns its ticket, and the output that it is to be sent to.
    pub(super) fn begin(
        &mut self,
        core: &Arc<Core>,
        client: usize,
    ) -> Result<(Ticket, Publisher), CallError> {
        let state = &mut self.clients[client];
        let service = || state.spec.service.clone();
        let count = state.waiting.len() + state.answered.len();
        if count >= state.max_in_flight {
            return Err(CallError::Busy {
                service: service(),
                count,
            });
        }
        let output = core.outputs.get(state.spec.output as usize).cloned();
        let output = output.ok_or_else(|| CallError::NotRunning { service: service() })?;
        self.last_id += 1;
        let id = self.last_id;
        state.waiting.push((id, true));
        if state.spec.feedback.is_some() {
            state.goals.push(GoalProgress {
                id,
                state: GoalState::Unknown,
                is_cancelled: false,
                updates: VecDeque::new(),
            });
        }
        Ok((
            Ticket { client, id },
            Publisher::new(output, core.clone(), None),
        ))
    }

    /// Takes the result of sending the request. A request that was not sent is forgotten.
    pub(super) fn finish_send(
        &mut self,
        ticket: Ticket,
        sent: Result<Receipt, SendError>,
    ) -> Result<Ticket, CallError> {
        let service = self.service(ticket.client).to_owned();
        let error = match sent {
            Ok(Receipt { queued: 1.., .. }) => return Ok(ticket),
            Ok(Receipt { missed: 1.., .. }) => CallError::Busy {
                service,
                count: self.clients[ticket.client].waiting.len(),
            },
            Ok(_) => CallError::NotRunning { service },
            Err(error) => error.into(),
        };
        let state = &mut self.clients[ticket.client];
        state.waiting.retain(|(id, _)| *id != ticket.id);
        state.goals.retain(|goal| goal.id != ticket.id);
        Err(error)
    }

    /// Stores an answer. An answer to an abandoned or unknown request is dropped.
    pub(super) fn answer(&mut self, client: usize, sample: Sample) {
        let state = &mut self.clients[client];
        let id = sample.header().correlation_id;
        let Some(at) = state.waiting.iter().position(|&(waiting, _)| waiting == id) else {
            return;
        };
        let (_, is_wanted) = state.waiting.swap_remove(at);
        if !is_wanted {
            return;
        }
        let metadata = sample.metadata().unwrap_or_default();
        let service = state.spec.service.clone();
        let answer = match (failure_of(&sample), metadata.get(UNREACHED_KEY)) {
            (Some(reason), _) => Err(CallError::Failed { service, reason }),
            (_, Some(Value::Text(reason))) if reason.is_empty() => {
                Err(CallError::NotRunning { service })
            }
            (_, Some(Value::Text(reason))) => Err(CallError::Gone {
                service,
                reason: reason.clone(),
            }),
            _ if GoalState::reported(&sample) == Some(GoalState::Canceled) => {
                Err(CallError::Canceled { service })
            }
            _ => Ok(sample),
        };
        if let Some(goal) = state.goals.iter_mut().find(|goal| goal.id == id) {
            goal.state = match answer {
                Ok(_) => GoalState::Succeeded,
                Err(CallError::Canceled { .. }) => GoalState::Canceled,
                Err(_) => GoalState::Aborted,
            };
        }
        state.answered.push((id, answer));
    }

    /// Stores feedback, or a change of state. That of an unknown goal is dropped.
    pub(super) fn feedback(&mut self, client: usize, sample: Sample) {
        let id = sample.header().correlation_id;
        let mut goals = self.clients[client].goals.iter_mut();
        let Some(goal) = goals.find(|goal| goal.id == id) else {
            return;
        };
        let reported = GoalState::reported(&sample);
        if reported.is_none() {
            if goal.updates.len() == MAX_UPDATES {
                goal.updates.pop_front();
            }
            goal.updates.push_back(sample);
        }
        // Numbers of states grow, and the result may have come before.
        let state = reported.unwrap_or(GoalState::Executing);
        if state as u8 > goal.state as u8 {
            goal.state = state;
        }
    }

    /// Takes the oldest feedback on a goal.
    pub(super) fn take_update(&mut self, ticket: Ticket) -> Option<Sample> {
        self.goal(ticket)?.updates.pop_front()
    }

    /// The state of a goal whose result was not taken.
    pub(super) fn state(&mut self, ticket: Ticket) -> GoalState {
        self.goal(ticket)
            .map_or(GoalState::Unknown, |goal| goal.state)
    }

    fn goal(&mut self, ticket: Ticket) -> Option<&mut GoalProgress> {
        let mut goals = self.clients[ticket.client].goals.iter_mut();
        goals.find(|goal| goal.id == ticket.id)
    }

    /// The input on which feedback on the goals of a client arrives.
    pub(super) fn feedback_input(&self, client: usize) -> Option<u32> {
        self.clients[client].spec.feedback
    }

    /// The output for the cancellation of a goal, if it is in flight and was not cancelled before.
    pub(super) fn begin_cancel(
        &mut self,
        core: &Arc<Core>,
        ticket: Ticket,
    ) -> Result<Option<Publisher>, CallError> {
        let state = &mut self.clients[ticket.client];
        if state.spec.feedback.is_none() {
            return Err(CallError::NoAction {
                service: state.spec.service.clone(),
            });
        }
        if !state.waiting.iter().any(|(id, _)| *id == ticket.id) {
            return Ok(None);
        }
        let mut goals = state.goals.iter_mut();
        let goal = goals.find(|goal| goal.id == ticket.id && !goal.is_cancelled);
        let Some(goal) = goal else {
            return Ok(None);
        };
        goal.is_cancelled = true;
        let output = core.outputs.get(state.spec.output as usize).cloned();
        Ok(output.map(|output| Publisher::new(output, core.clone(), None)))
    }

    /// Fails all requests of a client: the process that was to answer them has ended.
    pub(super) fn fail_all(&mut self, client: usize) {
        let state = &mut self.clients[client];
        for (id, _) in state.waiting.drain(..).filter(|&(_, is_wanted)| is_wanted) {
            let service = state.spec.service.clone();
            let reason = ENDED.to_owned();
            let gone = CallError::Gone { service, reason };
            state.answered.push((id, Err(gone)));
        }
    }

    /// Takes the answer, if it has arrived.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Answer> {
        let answered = &mut self.clients[ticket.client].answered;
        let at = answered.iter().position(|(id, _)| *id == ticket.id)?;
        let (_, answer) = answered.swap_remove(at);
        let goals = &mut self.clients[ticket.client].goals;
        goals.retain(|goal| goal.id != ticket.id);
        Some(answer)
    }

    /// Abandons a request: its answer will be dropped.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        let state = &mut self.clients[ticket.client];
        state
            .waiting
            .iter_mut()
            .filter(|(id, _)| *id == ticket.id)
            .for_each(|(_, is_wanted)| *is_wanted = false);
        state.answered.retain(|(id, _)| *id != ticket.id);
        state.goals.retain(|goal| goal.id != ticket.id);
    }
}
