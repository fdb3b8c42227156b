//! The services of a dataflow, and requests of tools to them.
//!
//! A request goes to the keeper of the service's node, and the answer comes as a sample of an output, which
//! is observed before: it may be as large as any sample, and comes from other machines as those do.

use std::{
    hash::{BuildHasher, RandomState},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use nervure_node::{Sample, binding::answer_of};
use nervure_protocol::{
    cli_to_keeper::{Call as Request, Message},
    wiring::{self, answers_to_tools},
};
use serde_json::Value;

use crate::{
    Error, State,
    answers::{ListedService, Services},
    observing::{Observing, Seen},
    places::split_name,
    topics::{SelectedTopics, Topic},
};

/// Samples that the queue for answers holds: those to other tools come, too.
const QUEUE_DEPTH: u32 = 16;

/// A wait without a time limit ends after this time, and begins again.
const A_WHILE: Duration = Duration::from_secs(3600);

/// The services of a dataflow, in the order of its file.
pub fn all(state: &State) -> Vec<ListedService> {
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
        let services = node.declared.services.iter().map(|service| {
            let name = format!("{}/{}", node.declared.id, service.name);
            ListedService {
                clients: clients(&name),
                service: name,
                node: node.declared.id.clone(),
                state: node.state().to_owned(),
                machine: state.machine_of(node.declared.node).map(str::to_owned),
            }
        });
        services.collect::<Vec<_>>()
    };
    state.own_nodes().flat_map(of_node).collect()
}

/// The services of a dataflow.
///
/// # Errors
/// If the dataflow cannot be found or reached.
pub fn services(dataflow: &str) -> Result<Services, Error> {
    let state = State::find(Some(dataflow), "service-list", false)?;
    Ok(Services::of(&state))
}

impl Services {
    /// The services of a dataflow.
    pub fn of(state: &State) -> Self {
        Self {
            dataflow: state.welcome().dataflow.clone(),
            services: all(state),
        }
    }
}

/// A request to a service that is on its way.
pub struct Call {
    service: String,
    id: u64,
    observing: Observing,
}

impl Call {
    /// Sends a request to `node/service` or `dataflow:node/service`.
    ///
    /// # Errors
    /// If there is no such service, or its node does not run or cannot be reached.
    pub fn send(
        service: &str,
        dataflow: Option<&str>,
        value: Value,
        program: &str,
    ) -> Result<Self, Error> {
        let (dataflow, service) = split_name(service, dataflow)?;
        let state = State::find(dataflow, program, false)?;
        let (node, topic) = answers_of(&state, service)?;
        let mut keeper = state.place_of(topic.node).connect(program)?;
        let topics = vec![topic];
        let selected = SelectedTopics { state, topics };
        let observing = Observing::open(selected, QUEUE_DEPTH, program)?;
        let id = RandomState::new().hash_one(service);
        let (_, name) = service.split_once('/').unwrap_or_default();
        keeper.ask(&Message::Call(Request {
            node,
            service: name.to_owned(),
            correlation_id: id,
            value,
        }))?;
        Ok(Self {
            service: service.to_owned(),
            id,
            observing,
        })
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Error::ServiceFailed`] with the reason of the service, [`Error::NoAnswer`] after `timeout`, and
    /// [`Error::ServiceEnded`] if its node ends before.
    pub fn answer(&mut self, timeout: Option<Duration>) -> Result<Sample, Error> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let until = deadline.unwrap_or_else(|| Instant::now() + A_WHILE);
            let sample = match self.observing.next_until(until) {
                Ok(Ok(Seen::Sample { sample, .. })) => sample,
                Ok(Ok(Seen::Ended { .. })) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::ServiceEnded {
                        service: self.service.clone(),
                    });
                }
                Ok(Ok(Seen::Note(_))) => continue,
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => match timeout {
                    Some(timeout) => {
                        return Err(Error::NoAnswer {
                            service: self.service.clone(),
                            timeout,
                        });
                    }
                    None => continue,
                },
            };
            if sample.header().correlation_id == self.id {
                let service = self.service.clone();
                return answer_of(sample)
                    .map_err(|reason| Error::ServiceFailed { service, reason });
            }
        }
    }
}

/// The node of a service, and the topic with its answers.
fn answers_of(state: &State, service: &str) -> Result<(String, Topic), Error> {
    let found = service.split_once('/').and_then(|(id, name)| {
        let node = state.node(id)?;
        let mut services = node.declared.services.iter();
        services.find(|known| known.name == name)?;
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
    found.ok_or_else(|| Error::NoService {
        service: service.to_owned(),
        services: all(state).into_iter().map(|known| known.service).collect(),
        unreachable: state
            .unreachable
            .iter()
            .map(|one| one.reason.clone())
            .collect(),
    })
}
