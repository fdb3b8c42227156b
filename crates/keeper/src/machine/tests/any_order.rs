//! Whatever happens in whatever order, every node is told a consistent story, and the end comes.

use std::time::Duration;

use nervure_protocol::{node_to_keeper, run_to_keeper, wiring::Policy};
use proptest::prelude::*;

use super::{World, node};
use crate::{
    machine::{End, Event},
    plan::{LastValuePlan, RestartPolicy},
};

const NODES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Hello(usize),
    Ready(usize),
    Goodbye(usize),
    Exit(usize, End),
    Wait(u64),
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..NODES;
    let end = prop_oneof![Just(End::Code(0)), Just(End::Code(1)), Just(End::Signal(9))];
    let step = prop_oneof![
        8 => node.clone().prop_map(Step::Hello),
        2 => node.clone().prop_map(Step::Ready),
        1 => node.clone().prop_map(Step::Goodbye),
        4 => (node, end).prop_map(|(node, end)| Step::Exit(node, end)),
        4 => (1..2000u64).prop_map(Step::Wait),
        1 => Just(Step::Stop),
    ];
    prop::collection::vec(step, 0..80)
}

fn worlds() -> impl Strategy<Value = World> {
    let policy =
        prop_oneof![Just(RestartPolicy::Never), Just(RestartPolicy::OnFailure), Just(RestartPolicy::Always)];
    let nodes = prop::collection::vec((policy, any::<bool>(), any::<bool>()), NODES);
    let queue = prop_oneof![Just(Policy::Block), Just(Policy::DropOldest)];
    let edges = prop::collection::vec((0..NODES, 0..NODES, queue), 0..8);
    (nodes, edges).prop_map(|(nodes, edges)| {
        let nodes = nodes.into_iter().enumerate().map(|(index, (policy, manual_ready, has_last_value))| {
            let mut plan = node(&format!("n{index}"), policy);
            plan.manual_ready = manual_ready;
            if has_last_value {
                plan.on_failure.push(LastValuePlan { output: 0, value: serde_json::Value::Null });
            }
            plan
        });
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
        Step::Goodbye(node) if is_connected(world, node) => world.message(node, Message::Goodbye),
        Step::Exit(node, end) if world.processes[node].runs => world.exit(node, end),
        Step::Wait(millis) => world.advance(Duration::from_millis(millis)),
        Step::Stop => world.give(Event::Run(run_to_keeper::Message::Stop { reason: "test".to_owned() })),
        _ => {}
    }
}

/// Between two nodes that are connected and have not left, each edge of the plan is attached at both ends or at none.
fn check_agreement(world: &World, left: &[bool]) {
    for edge in &world.machine.plan().edges {
        let (producer, consumer) = (&world.processes[edge.producer], &world.processes[edge.consumer]);
        if !producer.is_wired || !consumer.is_wired || left[edge.producer] || left[edge.consumer] {
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
        assert_eq!(at_producer, at_consumer, "{edge:?}");
        assert_eq!(at_producer.len(), 1, "{edge:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_story_is_consistent_and_has_an_end(mut world in worlds(), steps in steps()) {
        world.give(Event::Launch);
        let mut left = [false; NODES];
        for step in steps {
            match step {
                Step::Goodbye(node) => left[node] |= world.processes[node].is_wired,
                Step::Exit(node, _) => left[node] = false,
                _ => {}
            }
            take(&mut world, step);
            check_agreement(&world, &left);
        }
        world.give(Event::Run(run_to_keeper::Message::Stop { reason: "test".to_owned() }));
        world.advance(Duration::from_secs(60));
        for node in 0..NODES {
            if world.processes[node].runs {
                world.exit(node, End::Signal(9));
            }
        }
        prop_assert!(world.is_finished);
        world.advance(Duration::from_secs(60));
        prop_assert!(world.processes.iter().all(|process| !process.runs));
    }
}
