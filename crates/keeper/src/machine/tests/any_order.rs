//! For any order of events, the messages to every node are consistent, and the dataflow ends.

use std::time::Duration;

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{self, Attach, Hello, NodeOrder, Observe, Replace},
    graph::Program,
    keeper_to_cli, node_to_keeper,
    wiring::{EdgeState, Policy, Return},
};
use proptest::prelude::*;

use super::{World, node, world::TOKEN};
use crate::{
    machine::{End, Event},
    plan::{EdgePlan, LastValueSpec, Ready, RestartPolicy},
};

const NODES: usize = 4;

const CLIENTS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Hello(usize),
    Ready(usize),
    Goodbye(usize),
    Exit(usize, End),
    Wait(u64),
    Stop,
    /// The dataflow drains for at most this number of milliseconds.
    Drain(u64),
    /// A client connects, and observes the first topic.
    Observe(usize),
    /// A client's connection is closed.
    Leave(usize),
    /// A client stops, starts or restarts a node.
    Order(usize, NodeOrder),
    /// A client joins as a node, where that is allowed.
    Join(usize, usize),
    /// Another client attaches to a node, with `leave_stopped` or without.
    Attach(usize, usize, bool),
    /// A client gives a node another program.
    Replace(usize),
    /// A node reports the state of an edge, its own or another's.
    EdgeStatus(usize, usize, EdgeState),
    /// A node cuts one of its edges.
    Cut(usize, usize),
    /// The producer of an edge of the plan closes its output.
    CloseOutput(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..NODES;
    let end = prop_oneof![Just(End::Code(0)), Just(End::Code(1)), Just(End::Signal(9))];
    let order = prop_oneof![
        Just(NodeOrder::Stop),
        Just(NodeOrder::Start),
        Just(NodeOrder::Restart),
        Just(NodeOrder::Unload),
        Just(NodeOrder::Load)
    ];
    let states = [
        EdgeState::Waiting,
        EdgeState::Working,
        EdgeState::Failed,
        EdgeState::Unknown,
    ];
    let state = prop::sample::select(states.to_vec());
    let step = prop_oneof![
        8 => node.clone().prop_map(Step::Hello),
        2 => node.clone().prop_map(Step::Ready),
        1 => node.clone().prop_map(Step::Goodbye),
        4 => (node.clone(), end).prop_map(|(node, end)| Step::Exit(node, end)),
        4 => (1..2000u64).prop_map(Step::Wait),
        1 => Just(Step::Stop),
        1 => (1..5000_u64).prop_map(Step::Drain),
        3 => (1..=CLIENTS).prop_map(Step::Observe),
        3 => (1..ORDERING).prop_map(Step::Leave),
        6 => (1..=CLIENTS, node.clone()).prop_map(|(client, node)| Step::Join(client, node)),
        2 => (CLIENTS + 1..ORDERING, node.clone(), any::<bool>())
            .prop_map(|(client, node, leave_stopped)| Step::Attach(client, node, leave_stopped)),
        1 => node.clone().prop_map(Step::Replace),
        1 => (node.clone(), 0..4_usize, state).prop_map(|(node, at, state)| Step::EdgeStatus(node, at, state)),
        1 => (node.clone(), 0..4_usize).prop_map(|(node, at)| Step::Cut(node, at)),
        1 => (0..8_usize).prop_map(Step::CloseOutput),
        2 => (node, order).prop_map(|(node, order)| Step::Order(node, order)),
    ];
    prop::collection::vec(step, 0..80)
}

fn worlds() -> impl Strategy<Value = World> {
    let policy = prop_oneof![
        Just(RestartPolicy::Never),
        Just(RestartPolicy::OnFailure),
        Just(RestartPolicy::Always)
    ];
    let machine = "edge".to_owned();
    let joined = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Program::Dynamic)),
        1 => Just(Some(Program::Remote { machine })),
    ];
    let nodes = prop::collection::vec((policy, any::<bool>(), any::<bool>(), joined), NODES);
    let queue = prop_oneof![Just(Policy::Block), Just(Policy::DropOldest)];
    let edges = prop::collection::vec((0..NODES, 0..NODES, queue), 0..8);
    (nodes, edges).prop_map(|(nodes, edges)| {
        let nodes = nodes.into_iter().enumerate().map(
            |(index, (policy, manual_ready, has_last_value, joined))| {
                let mut plan = node(&format!("n{index}"), policy);
                plan.settings.ready = if manual_ready {
                    Ready::Manual
                } else {
                    Ready::Auto
                };
                if let Some(program) = joined {
                    plan.program = program;
                }
                if has_last_value {
                    plan.settings.on_failure.push(LastValueSpec {
                        output: 0,
                        value: serde_json::Value::Null,
                    });
                }
                plan
            },
        );
        World::new(nodes.collect(), &edges)
    })
}

fn take(world: &mut World, step: Step) {
    use node_to_keeper::Message;
    let is_connected =
        |world: &World, node: usize| world.processes[node].runs && world.processes[node].is_wired;
    match step {
        Step::Hello(node) if world.processes[node].runs && !world.processes[node].said_hello => {
            world.hello(node)
        }
        Step::Ready(node) if is_connected(world, node) => world.message(node, Message::Ready),
        // A stand-in leaves when its node has ended on the other machine, and never comes back.
        Step::Goodbye(node) if is_connected(world, node) && !is_remote(world, node) => {
            world.message(node, Message::Goodbye { cut_short: false })
        }
        Step::Exit(node, end) if is_own(world, node) => world.exit(node, end),
        Step::Join(client, node) => join(world, client, node),
        Step::Attach(client, node, leave_stopped) => {
            let attach = Attach {
                node: format!("n{node}"),
                token: token(client),
                leave_stopped,
            };
            greet(world, client);
            world.ask(client, cli_to_keeper::Message::Attach(attach));
        }
        Step::Replace(node) => {
            let program = Program::Command("another".to_owned());
            let replace = Replace {
                node: format!("n{node}"),
                program,
                args: None,
                folder: None,
                version: None,
            };
            greet(world, ORDERING);
            let message = cli_to_keeper::Message::Replace(replace);
            world.give(Event::ClientMessage {
                client: ORDERING,
                pid: 1,
                message,
            });
        }
        Step::EdgeStatus(node, at, state) if is_connected(world, node) => {
            let mut edges = world
                .processes
                .iter()
                .flat_map(|process| process.edges_seen.iter().copied());
            let Some(edge) = edges.nth(at) else { return };
            let cause = "no descriptors".to_owned();
            world.message(
                node,
                Message::EdgeStatus(node_to_keeper::EdgeStatus { edge, state, cause }),
            );
        }
        Step::Cut(node, at) if is_connected(world, node) => {
            let process = &world.processes[node];
            let Some(&edge) = process.outputs.keys().chain(process.inputs.keys()).nth(at) else {
                return;
            };
            world.message(
                node,
                Message::Misbehaviour {
                    edge,
                    what: "noise".to_owned(),
                },
            );
        }
        Step::CloseOutput(at) => {
            let edge = world.machine.plan().edges.get(at);
            let Some((producer, output)) = edge.map(|edge| (edge.producer, edge.output)) else {
                return;
            };
            if is_connected(world, producer) {
                let output = u32::try_from(output).unwrap();
                world.message(producer, Message::CloseOutput { output });
            }
        }
        Step::Wait(millis) => world.advance(Duration::from_millis(millis)),
        Step::Observe(client) => observe(world, client),
        Step::Leave(client) => leave(world, client),
        Step::Order(node, order) => {
            let node = format!("n{node}");
            greet(world, ORDERING);
            world.ask(ORDERING, cli_to_keeper::Message::Node { node, order });
        }
        Step::Stop => world.stop(),
        Step::Drain(millis) => world.drain(Some(millis)),
        _ => {}
    }
}

/// The number of the client that only gives orders; the two before it attach.
const ORDERING: usize = CLIENTS + 3;

/// The token of a client that attaches.
fn token(client: usize) -> String {
    format!("of {client}")
}

/// True for a process that the keeper has started.
fn is_own(world: &World, node: usize) -> bool {
    world.processes[node].runs && world.processes[node].guest.is_none()
}

fn is_remote(world: &World, node: usize) -> bool {
    world.machine.plan().nodes[node].is_remote()
}

/// Tries every token.
fn join(world: &mut World, client: usize, node: usize) {
    if world
        .processes
        .iter()
        .any(|process| process.guest == Some(client))
    {
        return;
    }
    for token in [TOKEN.to_owned(), token(CLIENTS + 1), token(CLIENTS + 2)] {
        if let Ok(joined) = world.join(client, &format!("n{node}"), &token) {
            assert_eq!(joined, node);
            return;
        }
    }
}

fn greet(world: &mut World, client: usize) {
    if !world.replies.contains_key(&client) {
        let hello = Hello {
            versions: VERSIONS,
            program: "test".to_owned(),
        };
        world.ask(client, cli_to_keeper::Message::Hello(hello));
    }
}

fn observe(world: &mut World, client: usize) {
    let Some(edge) = world.machine.plan().edges.first() else {
        return;
    };
    let topics = vec![world.machine.plan().topic(edge)];
    if world
        .processes
        .iter()
        .any(|process| process.guest == Some(client))
    {
        return;
    }
    greet(world, client);
    let answer = world.ask(
        client,
        cli_to_keeper::Message::Observe(Observe { topics, depth: 2 }),
    );
    if matches!(answer, keeper_to_cli::Message::Observing { .. }) {
        let node = world
            .processes
            .iter()
            .position(|process| process.guest == Some(client))
            .unwrap();
        world.hello(node);
    }
}

fn leave(world: &mut World, client: usize) {
    if world.replies.remove(&client).is_some() {
        world.give(Event::ClientGone { client });
    }
}

/// Between two nodes that are connected and have not left, each edge of the plan is attached at
/// both ends; where edges were cut off, at both ends or at none. The output of a node that has
/// closed one may be attached at the producer alone.
fn check_agreement(world: &World, left: &[bool], has_cut: bool, has_closed: &[bool]) {
    let has_left = |node: usize| left.get(node).copied().unwrap_or(false);
    for edge in &world.machine.plan().edges {
        let (producer, consumer) = (
            &world.processes[edge.producer],
            &world.processes[edge.consumer],
        );
        if !producer.is_wired
            || !consumer.is_wired
            || has_left(edge.producer)
            || has_left(edge.consumer)
        {
            continue;
        }
        let at_producer: Vec<_> = producer
            .outputs
            .values()
            .filter(|(attach, _)| attach.consumer == world.machine.plan().input(edge))
            .map(|(attach, suspended)| (attach.edge, *suspended))
            .collect();
        let at_consumer: Vec<_> = consumer
            .inputs
            .values()
            .filter(|attach| attach.input as usize == edge.input)
            .map(|a| (a.edge, false))
            .collect();
        if has_closed[edge.producer] && at_consumer.is_empty() {
            continue;
        }
        assert_eq!(at_producer, at_consumer, "{edge:?}");
        assert!(
            at_producer.len() == 1 || has_cut && at_producer.is_empty(),
            "{edge:?}"
        );
    }
}

/// The producer of an edge that drops knows that a consumer which will be started again has no
/// process. It knows of none that has one.
fn check_awaited(world: &World, left: &[bool]) {
    let mut rows = [0; NODES];
    let edges = world.machine.plan().edges.iter();
    for edge in edges.filter(|edge| edge.consumer < NODES) {
        let row = rows[edge.producer];
        rows[edge.producer] += 1;
        let (producer, consumer) = (
            &world.processes[edge.producer],
            &world.processes[edge.consumer],
        );
        let mut ends = world.ended.iter().rev();
        let end = ends.find(|ended| ended.node as usize == edge.consumer);
        let is_connected = producer.is_wired && !left[edge.producer];
        let known = producer.awaited.get(&row).filter(|_| is_connected);
        let plan = &world.machine.plan().nodes[edge.consumer];
        let is_awaited = edge.producer != edge.consumer
            && !edge.is_lossless()
            && (plan.is_remote() || !plan.is_dynamic());
        // The daemon comes back for a dataflow that goes on.
        let is_over = world.machine.supervisor.phase().is_ending();
        let returns = plan.is_remote() && !is_over || end.is_some_and(|it| it.restarts);
        if consumer.is_wired && !left[edge.consumer] {
            assert!(known.is_none_or(|it| *it == Return::Never), "{edge:?}");
        } else if !consumer.runs && is_connected && is_awaited && returns {
            assert_eq!(known, Some(&Return::Certain), "{edge:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(512),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn messages_are_consistent_and_the_dataflow_ends(mut world in worlds(), steps in steps()) {
        world.give(Event::Launch);
        let mut left = [false; NODES];
        let mut has_cut = false;
        let mut has_closed = [false; NODES];
        for step in steps {
            match step {
                Step::Goodbye(node) => {
                    left[node] |= world.processes[node].is_wired && !is_remote(&world, node);
                }
                Step::Exit(node, _) => left[node] = false,
                Step::Cut(..) => has_cut = true,
                Step::CloseOutput(at) => {
                    if let Some(edge) = world.machine.plan().edges.get(at) {
                        has_closed[edge.producer.min(NODES - 1)] = true;
                    }
                }
                _ => {}
            }
            // Nodes that had ended for good may be started again by hand.
            world.processes.iter_mut().for_each(|process| process.may_reopen = true);
            take(&mut world, step);
            for (node, left) in left.iter_mut().enumerate() {
                *left &= world.processes[node].runs;
            }
            check_agreement(&world, &left, has_cut, &has_closed);
            check_awaited(&world, &left);
        }
        world.stop();
        world.advance(Duration::from_secs(60));
        for node in 0..NODES {
            if is_own(&world, node) {
                world.exit(node, End::Signal(9));
            }
        }
        prop_assert!(world.is_finished);
        world.advance(Duration::from_secs(60));
        prop_assert!(world.processes[..NODES].iter().all(|process| !process.runs));
        for client in 1..ORDERING {
            leave(&mut world, client);
        }
        prop_assert!(world.processes.iter().all(|process| !process.runs));
        let own_edges = |edge: &&EdgePlan| edge.consumer < NODES;
        let edges = &world.machine.plan().edges;
        prop_assert_eq!(edges.iter().filter(own_edges).count(), edges.len(), "the edges of guests are gone");
    }
}
