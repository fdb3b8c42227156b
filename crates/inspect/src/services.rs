//! The services and actions of a dataflow, and requests and goals of tools.
//!
//! A request goes to the keeper of the service's node, and the answer comes as a sample of an output, which
//! is observed before: it may be as large as any sample, and comes from other machines as those do.

use std::{
    hash::{BuildHasher, RandomState},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use nervure_node::{
    GoalState, Sample,
    binding::{self, AnswerToTool},
    running::Connection,
};
use nervure_protocol::{
    cli_to_keeper::{Call as Request, Message},
    wiring::{self, NewGoal, ServiceSpec, answers_to_tools},
};
use serde_json::Value;

use crate::{
    Error, State,
    answers::{Actions, ListedService, Services},
    observing::{Observing, Seen},
    places::split_name,
    topics::{SelectedTopics, Topic},
};

/// Samples that the queue for answers holds: those to other tools come, too.
const QUEUE_DEPTH: u32 = 16;

/// Services, or actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request has one answer.
    Service,
    /// A goal has feedback and a result, and can be cancelled.
    Action,
}

/// The services or actions of a dataflow, in the order of its file.
pub fn all(state: &State, kind: Kind) -> Vec<ListedService> {
    let clients = |service: &str| {
        let of_node = |node: &crate::state::NodeState| {
            let clients = node.declared.clients.iter();
            let clients = clients.filter(|client| client.service == service);
            let name = |name: &str| format!("{}/{name}", node.declared.id);
            clients.map(|client| name(&client.name)).collect::<Vec<_>>()
        };
        state.own_nodes().flat_map(of_node).collect()
    };
    let of_node = |node: &crate::state::NodeState| {
        let services = node.declared.services.iter();
        let services = services.filter(|service| kind_of(service) == kind);
        let services = services.map(|service| {
            let name = format!("{}/{}", node.declared.id, service.name);
            ListedService {
                clients: clients(&name),
                service: name,
                node: node.declared.id.clone(),
                state: node.state().to_owned(),
                machine: state.machine_of(node.declared.node).map(str::to_owned),
                new_goal: service.action.map(NewGoal::name),
            }
        });
        services.collect::<Vec<_>>()
    };
    state.own_nodes().flat_map(of_node).collect()
}

fn kind_of(service: &ServiceSpec) -> Kind {
    match service.action {
        Some(_) => Kind::Action,
        None => Kind::Service,
    }
}

impl Services {
    /// The services of a dataflow.
    pub fn of(state: &State) -> Self {
        Self {
            dataflow: state.welcome().dataflow.clone(),
            services: all(state, Kind::Service),
        }
    }
}

impl Actions {
    /// The actions of a dataflow.
    pub fn of(state: &State) -> Self {
        Self {
            dataflow: state.welcome().dataflow.clone(),
            actions: all(state, Kind::Action),
        }
    }
}

/// A request to a service, or a goal of an action, that is on its way.
pub struct Call {
    service: String,
    keeper: Connection,
    request: Request,
    observing: Observing,
}

/// Progress of a call.
pub enum Progress {
    /// Feedback on a goal.
    Feedback(Sample),
    /// A goal has another state.
    State(GoalState),
    /// The answer, or the result of a goal.
    Answer(Sample),
}

impl Call {
    /// Sends a request or goal to `node/service` or `dataflow:node/service`. `within` limits the time of a
    /// goal.
    ///
    /// # Errors
    /// If there is no such service or action, or its node does not run or cannot be reached.
    pub fn send(
        kind: Kind,
        service: &str,
        dataflow: Option<&str>,
        value: Value,
        within: Option<Duration>,
        program: &str,
    ) -> Result<Self, Error> {
        let (dataflow, service) = split_name(service, dataflow)?;
        let state = State::find(dataflow, program, false)?;
        let (node, topic) = answers_of(&state, kind, service)?;
        let mut keeper = state.place_of(topic.node).connect(program)?;
        let topics = vec![topic];
        let selected = SelectedTopics { state, topics };
        let observing = Observing::open(selected, QUEUE_DEPTH, program)?;
        let (_, name) = service.split_once('/').unwrap_or_default();
        let request = Request {
            node,
            service: name.to_owned(),
            correlation_id: RandomState::new().hash_one(service),
            value,
            cancels: false,
            within_nanos: within.map(|within| u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)),
        };
        keeper.ask(&Message::Call(request.clone()))?;
        Ok(Self {
            service: service.to_owned(),
            keeper,
            request,
            observing,
        })
    }

    /// Asks to cancel the goal.
    ///
    /// # Errors
    /// If the node of the action does not run, or the keeper is gone.
    pub fn cancel(&mut self) -> Result<(), Error> {
        self.request.cancels = true;
        self.request.value = Value::Null;
        self.keeper.ask(&Message::Call(self.request.clone()))?;
        Ok(())
    }

    /// Waits for progress. Returns `None` if there is none before `deadline`.
    ///
    /// # Errors
    /// [`Error::ServiceFailed`] with the reason of the service, [`Error::GoalCanceled`] for a goal that was
    /// cancelled, and [`Error::ServiceEnded`] if the node ends before.
    pub fn next_until(&mut self, deadline: Instant) -> Result<Option<Progress>, Error> {
        loop {
            let service = || self.service.clone();
            let sample = match self.observing.next_until(deadline) {
                Ok(Ok(Seen::Sample { sample, .. })) => sample,
                Ok(Ok(Seen::Ended { .. })) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::ServiceEnded { service: service() });
                }
                Ok(Ok(Seen::Note(_))) => continue,
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
            };
            let Some(answer) = binding::answer_to_tool(sample, self.request.correlation_id) else {
                continue;
            };
            return match answer {
                AnswerToTool::Failed(reason) => Err(Error::ServiceFailed {
                    service: service(),
                    reason,
                }),
                AnswerToTool::State(GoalState::Canceled) => {
                    Err(Error::GoalCanceled { service: service() })
                }
                AnswerToTool::State(state) => Ok(Some(Progress::State(state))),
                AnswerToTool::Feedback(sample) => Ok(Some(Progress::Feedback(sample))),
                AnswerToTool::Answer(sample) => Ok(Some(Progress::Answer(sample))),
            };
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`Call::next_until`], and [`Error::NoAnswer`] after `timeout`.
    pub fn answer(&mut self, timeout: Duration) -> Result<Sample, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.next_until(deadline)? {
                Some(Progress::Answer(sample)) => return Ok(sample),
                Some(Progress::Feedback(_) | Progress::State(_)) => {}
                None => {
                    let service = self.service.clone();
                    return Err(Error::NoAnswer { service, timeout });
                }
            }
        }
    }
}

/// The node of a service, and the topic with its answers.
fn answers_of(state: &State, kind: Kind, service: &str) -> Result<(String, Topic), Error> {
    let found = service.split_once('/').and_then(|(id, name)| {
        let node = state.node(id)?;
        let mut services = node.declared.services.iter();
        services.find(|known| known.name == name && kind_of(known) == kind)?;
        let output = answers_to_tools(name);
        let mut outputs = node.declared.outputs.iter();
        let output = outputs.find(|known| known.name == output)?;
        let topic = Topic {
            name: wiring::topic(id, &output.name),
            node: node.declared.node,
            output: output.clone(),
        };
        Some((id.to_owned(), topic))
    });
    found.ok_or_else(|| {
        let service = service.to_owned();
        let known = all(state, kind).into_iter().map(|known| known.service);
        let known = known.collect();
        let unreachable = state.unreachable.iter();
        let unreachable = unreachable.map(|one| one.reason.clone()).collect();
        match kind {
            Kind::Service => Error::NoService {
                service,
                services: known,
                unreachable,
            },
            Kind::Action => Error::NoAction {
                action: service,
                actions: known,
                unreachable,
            },
        }
    })
}
