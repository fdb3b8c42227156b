//! Guests: processes that the keeper did not start, and that receive what they ask for.
//!
//! A guest is a node with inputs only, behind those of the plan. Its edges are added to the plan when it comes and
//! removed when it goes; its place, with a new incarnation, is the next guest's. A guest can harm nobody: its queues
//! drop the oldest, it holds few blocks, and neither the start nor the end of the dataflow waits for it.

use std::{collections::BTreeMap, time::Duration};

use nervure_protocol::{
    cli_to_keeper::Observe,
    did_you_mean,
    keeper_to_cli::{self, Refused},
    keeper_to_run::{self, Level},
    wiring::{self, InputSpec, Policy, Queue, Source},
};

use super::{Action, Descriptor, Machine, Node, State, clients::refused, index};
use crate::plan::{
    EdgePlan, NodePlan, OBSERVER_MAX_HELD, OBSERVERS_PER_OUTPUT, Program, RestartPlan,
    RestartPolicy, Scheduling,
};

/// Guests at a time.
pub const MAX_GUESTS: usize = 32;

/// Samples that a guest's queue holds at most.
const MAX_DEPTH: u32 = 1 << 16;

impl Machine {
    /// True for a node that is not one of the plan's file.
    pub(super) fn is_guest(&self, node: usize) -> bool {
        node >= self.own_nodes
    }

    /// Makes a client a guest.
    pub(super) fn observe(
        &mut self,
        client: usize,
        pid: u32,
        request: &Observe,
    ) -> Result<(), Refused> {
        if self.phase.is_stopping() {
            return Err(refused("the dataflow is stopping", None));
        }
        if !(1..=MAX_DEPTH).contains(&request.depth) {
            return Err(refused(
                format!(
                    "a queue of {} samples, expected 1 to {MAX_DEPTH}",
                    request.depth
                ),
                None,
            ));
        }
        let outputs = self.find_outputs(&request.topics)?;
        self.check_room(&outputs)?;
        let queue = Queue {
            policy: Policy::DropOldest,
            depth: request.depth,
            max_held: request.depth.saturating_add(2).min(OBSERVER_MAX_HELD),
        };
        let id = self.name_of_client(client);
        let node = self.seat(guest_plan(id.clone(), &request.topics, queue));
        for (input, &(producer, output)) in outputs.iter().enumerate() {
            self.plan.edges.push(EdgePlan {
                producer,
                output,
                consumer: node,
                input,
                queue,
            });
            self.wiring.add_spec(&self.plan);
        }
        self.client_is_guest(client, node);
        let text = format!("`{id}` observes {}", list(&request.topics));
        self.log_client(Level::Debug, text);
        self.reply(
            client,
            keeper_to_cli::Message::Observing { node: id.clone() },
            None,
        );
        self.actions.push(Action::Admit { client, node });
        let started = keeper_to_run::NodeStarted {
            node: index(node),
            id,
            pid,
            incarnation: self.nodes[node].incarnation,
            restarts: 0,
            observer: true,
        };
        self.nodes[node].started = Some(started.clone());
        let message = keeper_to_run::Message::NodeStarted(started);
        self.report_to_watchers(message, Some(Descriptor::CountersReadOnly(node)));
        Ok(())
    }

    /// A guest's connection is closed: undoes its edges, and frees its place.
    pub(super) fn guest_gone(&mut self, node: usize) {
        self.nodes[node].state = State::Ended;
        self.nodes[node].kill_at = None;
        self.unwire(node, false);
        self.wiring.remove_specs(&mut self.plan, node);
        let id = std::mem::take(&mut self.plan.nodes[node].id);
        self.plan.nodes[node].inputs.clear();
        self.log_client(Level::Debug, format!("`{id}` is gone"));
        self.report_to_watchers(
            keeper_to_run::Message::NodeEnded(keeper_to_run::NodeEnded {
                node: index(node),
                id,
                incarnation: self.nodes[node].incarnation,
                code: None,
                signal: None,
                failed: false,
                restarts: false,
                reason: "it observes no more".to_owned(),
                overdue: false,
                stderr_tail: Vec::new(),
            }),
            None,
        );
        self.nodes[node].started = None;
        self.actions.push(Action::Forget { node });
    }

    fn find_outputs(&self, topics: &[String]) -> Result<Vec<(usize, usize)>, Refused> {
        if topics.is_empty() {
            return Err(refused("no topic was named", None));
        }
        let mut known = BTreeMap::new();
        for (at, node) in self.plan.nodes[..self.own_nodes].iter().enumerate() {
            for (output, spec) in node.outputs.iter().enumerate() {
                known.insert(wiring::topic(&node.id, &spec.name), (at, output));
            }
        }
        let mut found = Vec::new();
        for topic in topics {
            let Some(output) = known.get(topic) else {
                let hint = did_you_mean(topic, "the topics are", known.keys().map(String::as_str));
                return Err(refused(format!("there is no topic `{topic}`"), Some(&hint)));
            };
            if found.contains(output) {
                return Err(refused(format!("topic `{topic}` was named twice"), None));
            }
            found.push(*output);
        }
        Ok(found)
    }

    /// Refuses what would be at the expense of the dataflow.
    fn check_room(&self, outputs: &[(usize, usize)]) -> Result<(), Refused> {
        const END_ONE: &str = "end one of them first: `nervure status` lists the observers";
        let guests = self.nodes[self.own_nodes..]
            .iter()
            .filter(|node| !node.has_ended())
            .count();
        if guests >= MAX_GUESTS {
            return Err(refused(
                format!("there are {guests} observers already, the most"),
                Some(END_ONE),
            ));
        }
        let guest_edges: Vec<_> = self
            .plan
            .edges
            .iter()
            .filter(|edge| self.is_guest(edge.consumer))
            .collect();
        if guest_edges.len() + outputs.len() > self.max_guest_edges {
            return Err(refused(
                format!(
                    "the keeper has file descriptors for {} observed topics, {} are observed already",
                    self.max_guest_edges,
                    guest_edges.len()
                ),
                Some("observe fewer topics, or start the dataflow with a higher `ulimit -Hn`"),
            ));
        }
        for &(producer, output) in outputs {
            let is_same = |edge: &&&EdgePlan| (edge.producer, edge.output) == (producer, output);
            let observers = guest_edges.iter().filter(is_same).count();
            if observers >= OBSERVERS_PER_OUTPUT as usize {
                let node = &self.plan.nodes[producer];
                let topic = wiring::topic(&node.id, &node.outputs[output].name);
                return Err(refused(
                    format!("`{topic}` has {observers} observers already, the most"),
                    Some(END_ONE),
                ));
            }
        }
        Ok(())
    }

    /// A place for a guest: a vacant one, or a new one.
    fn seat(&mut self, plan: NodePlan) -> usize {
        let vacant = (self.own_nodes..self.nodes.len()).find(|&node| self.nodes[node].has_ended());
        let node = vacant.unwrap_or_else(|| {
            self.nodes.push(Node::new());
            self.plan.nodes.push(plan.clone());
            self.nodes.len() - 1
        });
        let incarnation = if vacant.is_some() {
            self.nodes[node].incarnation + 1
        } else {
            0
        };
        self.plan.nodes[node] = plan;
        self.nodes[node] = Node {
            state: State::Spawned,
            incarnation,
            ..Node::new()
        };
        node
    }
}

fn guest_plan(id: String, topics: &[String], queue: Queue) -> NodePlan {
    let input = |topic: &String| InputSpec {
        name: topic.clone(),
        source: Source::Output {
            topic: topic.clone(),
        },
        queue: Some(queue),
        type_name: None,
        expect_every_nanos: None,
        history: 0,
    };
    NodePlan {
        program: Program::Command(id.clone()),
        id,
        args: Vec::new(),
        env: BTreeMap::new(),
        manual_ready: false,
        outputs: Vec::new(),
        inputs: topics.iter().map(input).collect(),
        loop_deadline: None,
        shared_memory_bytes: 0,
        restart: RestartPlan {
            policy: RestartPolicy::Never,
            delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            max_restarts: None,
            window: None,
        },
        startup_timeout: None,
        health_check_timeout: None,
        on_failure: Vec::new(),
        services: Vec::new(),
        clients: Vec::new(),
        params: Vec::new(),
        cpu_affinity: Vec::new(),
        scheduling: Scheduling::Inherited,
    }
}

/// The first few of a list.
fn list(topics: &[String]) -> String {
    const NAMED: usize = 8;
    let mut names: Vec<_> = topics
        .iter()
        .take(NAMED)
        .map(|topic| format!("`{topic}`"))
        .collect();
    if topics.len() > NAMED {
        names.push(format!("{} more", topics.len() - NAMED));
    }
    names.join(", ")
}
