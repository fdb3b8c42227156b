//! Requests to the services of a node, and the goals of its actions that it works on.

use super::event::Event;
use super::goal_state::{CancelCause, GoalState, deadline_of, is_cancellation};
use super::request::{Pending, Request};
use crate::core::Core;
use crate::sample::Sample;
use nervure_protocol::keeper_to_node::Call;
use nervure_protocol::wiring::NewGoal;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The goals that a node works on.
#[derive(Debug, Default)]
pub(super) struct Goals {
    active: Vec<Goal>,
    last_number: u64,
}

#[derive(Debug)]
struct Goal {
    service: usize,
    /// The input of its client; `None` for a tool.
    input: Option<usize>,
    correlation_id: u64,
    deadline: Option<u64>,
    pending: Weak<Pending>,
}

/// The service or action, and the input of the client; `None` for a tool.
type Origin = (usize, Option<usize>);

impl Goals {
    /// A request of a client has arrived on an input: adds its events.
    pub fn take_request(
        &mut self,
        core: &Arc<Core>,
        (service, client): (usize, usize),
        input: usize,
        sample: Sample,
        events: &mut VecDeque<Event>,
    ) {
        let origin = (service, Some(input));
        let Some(new_goal) = core.welcome.services[service].action else {
            let request = Request::received(core, service, client, sample, None);
            events.extend(request.map(Event::Request));
            return;
        };
        if is_cancellation(&sample) {
            let id = sample.header().correlation_id;
            events.extend(self.cancel_one(origin, id).into_iter().map(Event::Cancel));
            return;
        }
        let number = Some(self.next_number());
        if let Some(goal) = Request::received(core, service, client, sample, number) {
            self.accept(origin, goal, new_goal, events);
        }
    }

    /// A tool has sent a request or a goal, or cancels one: adds its events.
    pub fn take_call(&mut self, core: &Arc<Core>, call: &Call, events: &mut VecDeque<Event>) {
        let Some(spec) = core.welcome.services.get(call.service as usize) else {
            return;
        };
        let origin = (call.service as usize, None);
        match spec.action {
            None => events.extend(Request::of_tool(core, call, None).map(Event::Request)),
            Some(_) if call.cancels => {
                let cancelled = self.cancel_one(origin, call.correlation_id);
                events.extend(cancelled.into_iter().map(Event::Cancel));
            }
            Some(new_goal) => {
                let number = Some(self.next_number());
                if let Some(goal) = Request::of_tool(core, call, number) {
                    self.accept(origin, goal, new_goal, events);
                }
            }
        }
    }

    fn accept(
        &mut self,
        origin: Origin,
        goal: Request,
        new_goal: NewGoal,
        events: &mut VecDeque<Event>,
    ) {
        match self.add(origin, &goal, new_goal) {
            Ok(cancelled) => {
                events.extend(cancelled.into_iter().map(Event::Cancel));
                goal.report_state(GoalState::Accepted);
                events.push_back(Event::Goal(goal));
            }
            Err(reason) => {
                // A client that this does not reach has a time limit of its own.
                let _ = goal.fail(reason);
            }
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a goal. Returns the requests to cancel others in its favour, or refuses the goal.
    fn add(
        &mut self,
        (service, input): Origin,
        goal: &Request,
        new_goal: NewGoal,
    ) -> Result<Vec<Request>, &'static str> {
        self.remove_ended();
        let mut others = self.active.iter().filter(|known| known.service == service);
        let cancelled = match new_goal {
            NewGoal::Parallel => Vec::new(),
            NewGoal::Reject if others.next().is_some() => {
                return Err("it works on another goal");
            }
            NewGoal::Reject => Vec::new(),
            NewGoal::Preempt => {
                self.cancel(|known| known.service == service, CancelCause::Preempted)
            }
        };
        self.active.push(Goal {
            service,
            input,
            correlation_id: goal.sample().header().correlation_id,
            deadline: deadline_of(goal.sample()),
            pending: goal.downgrade(),
        });
        Ok(cancelled)
    }

    /// Cancels the goal of a client with that number.
    fn cancel_one(&mut self, (service, input): Origin, correlation_id: u64) -> Vec<Request> {
        let is_meant = |goal: &Goal| {
            (goal.service, goal.input, goal.correlation_id) == (service, input, correlation_id)
        };
        self.cancel(is_meant, CancelCause::Client)
    }

    /// Cancels all goals of a client, whose process has ended.
    pub fn cancel_of_input(&mut self, input: usize) -> Vec<Request> {
        self.cancel(|goal| goal.input == Some(input), CancelCause::ClientEnded)
    }

    /// Cancels the goals whose time limit has passed.
    pub fn cancel_late(&mut self, now: u64) -> Vec<Request> {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return Vec::new();
        }
        let is_late = |goal: &Goal| goal.deadline.is_some_and(|deadline| deadline <= now);
        let cancelled = self.cancel(is_late, CancelCause::Deadline);
        for goal in self.active.iter_mut().filter(|goal| is_late(goal)) {
            goal.deadline = None;
        }
        cancelled
    }

    /// The next time limit, in nanoseconds of CLOCK_MONOTONIC.
    pub fn next_deadline(&self) -> Option<u64> {
        self.active.iter().filter_map(|goal| goal.deadline).min()
    }

    fn cancel(&mut self, is_meant: impl Fn(&Goal) -> bool, cause: CancelCause) -> Vec<Request> {
        self.remove_ended();
        let meant = self.active.iter().filter(|goal| is_meant(goal));
        let pending = meant.filter_map(|goal| goal.pending.upgrade());
        pending
            .filter_map(|pending| Request::cancellation(pending, cause))
            .collect()
    }

    fn remove_ended(&mut self) {
        self.active.retain(|goal| {
            let pending = goal.pending.upgrade();
            pending.is_some_and(|pending| !pending.is_answered())
        });
    }
}
