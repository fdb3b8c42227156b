//! Requests of local nodes to services on other machines that have no answer yet.
//!
//! A client has the same errors as if the service ran here: if the service's process ends, if its
//! node does not run, and also if its machine cannot be reached. The daemon then answers in place of
//! the service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use nervure_node::Publisher;
use nervure_node::binding::{SERVICE_ENDED, fail_request};

/// The requests of a run, by the topic of their answers.
#[derive(Debug, Default)]
pub(crate) struct ServiceCalls(Mutex<BTreeMap<String, Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeSet<u64>,
    /// Publishes to the client, once the stand-in of the service has joined.
    answers: Option<Publisher>,
    /// Failures before that, as requests and reasons: the stand-in of the client may have joined earlier.
    unreported: Vec<(u64, Option<String>)>,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure<'m> {
    /// The service's node does not run, and has not executed the request.
    NotRunning,
    /// The service has not taken it: its queue is full of requests of this client.
    Busy,
    /// The link does not carry it, for this reason.
    Refused(&'m str),
    /// The process of the service has ended.
    Ended,
    /// The daemon of its machine, with this name, was restarted: the answer may be lost.
    Interrupted(&'m str),
    /// Its machine, with this name, cannot be reached.
    Unreachable(&'m str),
}

impl ServiceCalls {
    /// Expects requests whose answers have this topic from now on.
    pub fn add(&self, topic: &str) {
        self.change(topic, |_| ());
    }

    /// Whether a topic carries answers.
    pub fn has(&self, topic: &str) -> bool {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.contains_key(topic)
    }

    /// Sets the publisher of the answers of a topic.
    pub fn set_publisher(&self, topic: &str, publisher: &Publisher) {
        self.change(topic, |waiting| {
            waiting.answers = Some(publisher.clone());
            for (request, reason) in std::mem::take(&mut waiting.unreported) {
                waiting.report(topic, request, reason);
            }
        });
    }

    pub fn begin(&self, topic: &str, request: u64) {
        self.change(topic, |waiting| {
            waiting.requests.insert(request);
        });
    }

    /// Notes that a request is answered.
    pub fn answered(&self, topic: &str, request: u64) {
        self.change(topic, |waiting| {
            waiting.requests.remove(&request);
        });
    }

    /// Forgets all requests: the client's process has ended.
    pub fn forget_all(&self, topic: &str) {
        self.change(topic, |waiting| waiting.requests.clear());
    }

    pub fn any_waits(&self, topic: &str) -> bool {
        self.change(topic, |waiting| !waiting.requests.is_empty())
    }

    /// Fails a request, unless it is answered.
    pub fn fail(&self, topic: &str, request: u64, failure: Failure<'_>) {
        self.change(topic, |waiting| {
            if waiting.requests.remove(&request) {
                waiting.answer(topic, request, failure);
            }
        });
    }

    /// Fails all requests of a topic.
    pub fn fail_all(&self, topic: &str, failure: Failure<'_>) {
        self.change(topic, |waiting| {
            for request in std::mem::take(&mut waiting.requests) {
                waiting.answer(topic, request, failure);
            }
        });
    }

    fn change<T>(&self, topic: &str, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(calls.entry(topic.to_owned()).or_default())
    }
}

impl Waiting {
    fn answer(&mut self, topic: &str, request: u64, failure: Failure<'_>) {
        let reason = match failure {
            Failure::NotRunning => None,
            Failure::Busy => Some("has not taken the request: its queue is full".to_owned()),
            Failure::Refused(reason) => Some(format!("cannot be sent the request: {reason}")),
            Failure::Ended => Some(SERVICE_ENDED.to_owned()),
            Failure::Interrupted(machine) => Some(format!(
                "has not answered, and the connection to its machine `{machine}` was interrupted"
            )),
            Failure::Unreachable(machine) => Some(format!(
                "has not answered, and its machine `{machine}` cannot be reached"
            )),
        };
        self.report(topic, request, reason);
    }

    fn report(&mut self, topic: &str, request: u64, reason: Option<String>) {
        let Some(answers) = &self.answers else {
            return self.unreported.push((request, reason));
        };
        if let Err(error) = fail_request(answers, request, reason.as_deref()) {
            tracing::warn!("a failed request is not reported on {topic}: {error}");
        }
    }
}
