//! Guests: processes of clients that receive samples of the outputs they request.
//!
//! A guest can harm no node: its queues drop the oldest sample, it holds few blocks, and neither
//! the start nor the end of the dataflow waits for it.

use nervure_protocol::{
    cli_to_keeper::Observe,
    keeper_to_cli::{self, Refused},
    report::Level,
    wiring::{self, InputSpec, Policy, Queue, Source},
};

use super::{Requests, check_not_stopping};
use crate::{
    machine::{supervisor::Supervisor, turn::Turn},
    plan::{EdgePlan, NodePlan, NodeSettings, OBSERVER_MAX_HELD, OBSERVERS_PER_OUTPUT, Program},
};

/// Guests at a time.
pub const MAX_GUESTS: usize = 32;

/// Longest queue of a guest, in samples.
const MAX_DEPTH: u32 = 1 << 16;

impl Requests {
    /// Makes a client a guest.
    pub(super) fn observe(
        &self,
        (client, pid): (usize, u32),
        request: &Observe,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        check_not_stopping(supervisor)?;
        let Observe { topics, depth } = request;
        if !(1..=MAX_DEPTH).contains(depth) {
            let reason = format!("a queue of {depth} samples, expected 1 to {MAX_DEPTH}");
            return Err(Refused::new(reason, None));
        }
        let outputs = supervisor.network().graph().find_outputs(topics)?;
        self.check_room(&outputs, supervisor)?;
        let queue = Queue {
            policy: Policy::DropOldest,
            depth: *depth,
            max_held: depth.saturating_add(2).min(OBSERVER_MAX_HELD),
        };
        let id = self.clients.name(client);
        let graph = supervisor.network().graph();
        let types = outputs
            .iter()
            .map(|&(node, output)| graph.node(node).outputs[output].type_name.clone());
        let inputs = topics.iter().zip(types);
        let inputs = inputs.map(|(topic, type_name)| guest_input(topic, type_name, queue));
        let plan = guest_plan(id.clone(), inputs.collect());
        let node = supervisor
            .network_mut()
            .add_guest(client, plan, &outputs, queue);
        turn.log(Level::Debug, format!("`{id}` observes {}", list(topics)));
        turn.reply(client, keeper_to_cli::Message::Observing { node: id });
        supervisor
            .network_mut()
            .admit_guest(node, client, pid, turn);
        Ok(())
    }

    /// Refuses a guest at the expense of the dataflow.
    fn check_room(
        &self,
        outputs: &[(usize, usize)],
        supervisor: &Supervisor,
    ) -> Result<(), Refused> {
        const END_ONE: &str = "end one of them first: `nervure status` lists the observers";
        let graph = supervisor.network().graph();
        let guests = supervisor.network().nodes()[graph.own_nodes()..].iter();
        let guests = guests.filter(|node| !node.has_ended()).count();
        if guests >= MAX_GUESTS {
            let reason = format!("there are {guests} observers already, the most");
            return Err(Refused::new(reason, Some(END_ONE)));
        }
        let guest_edges: Vec<_> = graph.guest_edges().collect();
        if guest_edges.len() + outputs.len() > self.max_guest_edges {
            let reason = format!(
                "the keeper has file descriptors for {} observed topics, {} are observed already",
                self.max_guest_edges,
                guest_edges.len()
            );
            let hint = "observe fewer topics, or start the dataflow with a higher `ulimit -Hn`";
            return Err(Refused::new(reason, Some(hint)));
        }
        for &(producer, output) in outputs {
            let is_same = |edge: &&&EdgePlan| (edge.producer, edge.output) == (producer, output);
            let observers = guest_edges.iter().filter(is_same).count();
            if observers >= OBSERVERS_PER_OUTPUT as usize {
                let node = graph.node(producer);
                let topic = wiring::topic(&node.id, &node.outputs[output].name);
                let reason = format!("`{topic}` has {observers} observers already, the most");
                return Err(Refused::new(reason, Some(END_ONE)));
            }
        }
        Ok(())
    }
}

fn guest_input(topic: &str, type_name: Option<String>, queue: Queue) -> InputSpec {
    InputSpec {
        name: topic.to_owned(),
        source: Source::Output {
            topic: topic.to_owned(),
        },
        queue: Some(queue),
        type_name,
        expect_every_nanos: None,
        history: 0,
    }
}

fn guest_plan(id: String, inputs: Vec<InputSpec>) -> NodePlan {
    NodePlan {
        program: Program::Command(id.clone()),
        id,
        settings: NodeSettings::default(),
        outputs: Vec::new(),
        types: Default::default(),
        inputs,
        shared_memory_bytes: 0,
        services: Vec::new(),
        clients: Vec::new(),
    }
}

/// The first few of a list.
fn list(topics: &[String]) -> String {
    const MAX_NAMED: usize = 8;
    let mut names: Vec<_> = topics
        .iter()
        .take(MAX_NAMED)
        .map(|topic| format!("`{topic}`"))
        .collect();
    if topics.len() > MAX_NAMED {
        names.push(format!("{} more", topics.len() - MAX_NAMED));
    }
    names.join(", ")
}
