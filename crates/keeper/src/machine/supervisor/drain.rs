//! The end of a dataflow whose consumers empty their queues: sources stop first, and each other
//! node once its producers have ended and its queues are empty.

use std::time::Duration;

use nervure_protocol::{keeper_to_node, report::Level};

use super::{Supervisor, stop::stop_message};
use crate::machine::{
    action::Signal,
    node::{EndOrder, State},
    phase::Phase,
    turn::Turn,
};

/// Lets the dataflow run dry, within `limit`; an ordinary stop follows.
pub fn begin(supervisor: &mut Supervisor, reason: &str, limit: Option<Duration>, turn: &mut Turn) {
    if supervisor.phase.is_starting() {
        // No source has sent anything.
        return supervisor.stop(reason, turn);
    }
    if supervisor.phase == Phase::Running {
        let limit = limit.unwrap_or(supervisor.grace());
        let until = turn.now.saturating_add(limit);
        supervisor.phase = Phase::Draining { until };
        supervisor.loops = supervisor.network.graph().loops();
        turn.log(Level::Debug, format!("draining: {reason}"));
    }
}

/// Ends the nodes that receive nothing more.
pub fn advance(supervisor: &mut Supervisor, turn: &mut Turn) {
    let Phase::Draining { until } = supervisor.phase else {
        return;
    };
    let network = &supervisor.network;
    if until <= turn.now {
        let own = 0..network.graph().own_nodes();
        let alive = own.filter(|&node| network.node(node).is_alive());
        let ids: Vec<_> = alive
            .map(|node| format!("`{}`", network.graph().node(node).id))
            .collect();
        let text = format!("not drained in time: {}", ids.join(", "));
        turn.log(Level::Warn, text);
        return supervisor.stop("the dataflow was not drained in time", turn);
    }
    for node in network.get_no_more(&supervisor.loops) {
        if supervisor.network.node(node).end_order.is_none() {
            end_drained(supervisor, node, turn);
        }
    }
}

fn end_drained(supervisor: &mut Supervisor, node: usize, turn: &mut Turn) {
    let grace = supervisor.grace();
    let network = &mut supervisor.network;
    let is_source = network.graph().is_source(node);
    let state = network.node(node);
    let has_joined = state.client().is_some();
    match state.state() {
        State::Connected if state.has_left() || network.ends_with_its_inputs(node) => {}
        // It ends with its nodes on the other machine, or when that has confirmed the last samples.
        State::Connected | State::Held if network.is_bridge(node) => {}
        State::Connected => {
            let (order, message) = match is_source {
                true => (EndOrder::Stop, stop_message(grace, DRAIN)),
                false => (EndOrder::WhenDrained, when_drained()),
            };
            network.node_mut(node).end_order = Some(order);
            turn.send(node, message);
        }
        State::Spawned if has_joined => supervisor.disconnect(node, turn),
        State::Spawned if !network.graph().node(node).connects() => {
            network.node_mut(node).end_order = Some(EndOrder::Stop);
            supervisor.signal(node, Signal::Terminate, turn);
        }
        // It gets the order once it is connected.
        State::Spawned => {}
        // Its next process takes the queued samples.
        State::Waiting { .. } if network.may_have_backlog(node) => {}
        State::Waiting { .. } | State::Held => network.give_up_restart(node, turn),
        State::Ended => {}
    }
}

const DRAIN: &str = "the dataflow drains, and sources end first";

fn when_drained() -> keeper_to_node::Message {
    keeper_to_node::Message::StopWhenDrained {
        reason: "the dataflow drains, and all queued samples were received".to_owned(),
    }
}
