//! Requests of tools to services, and samples of tools.

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Call, Hello, Message, Publish},
    keeper_to_cli::{Message as Answer, Published},
    keeper_to_node::{self, NodeEnd},
    node_to_keeper,
    wiring::ServiceSpec,
};
use serde_json::json;

use super::{World, drop_oldest, node};
use crate::{
    machine::{End, Event},
    plan::RestartPolicy::Never,
};

fn world() -> World {
    let mut planner = node("planner", Never);
    planner.services = vec![ServiceSpec {
        name: "plan".to_owned(),
        clients: Vec::new(),
        tools: Some(1),
        action: None,
    }];
    let mut world = World::running(vec![planner, node("sink", Never)], &[drop_oldest(0, 1)]);
    world.ask(
        1,
        Message::Hello(Hello {
            versions: VERSIONS,
            program: "service".to_owned(),
        }),
    );
    world
}

fn call(world: &mut World, node: &str, service: &str) -> Result<(), (String, Option<String>)> {
    let call = Call {
        node: node.to_owned(),
        service: service.to_owned(),
        correlation_id: u64::MAX,
        value: json!(6),
        cancels: false,
        within_nanos: None,
    };
    match world.ask(1, Message::Call(call)) {
        Answer::Done => Ok(()),
        Answer::Refused(refused) => Err((refused.reason, refused.hint)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_reaches_the_node_of_its_service() {
    let mut world = world();
    call(&mut world, "planner", "plan").unwrap();
    let expected = keeper_to_node::Call {
        service: 0,
        client: "service@1001".to_owned(),
        correlation_id: u64::MAX,
        value: json!(6),
        cancels: false,
        within_nanos: None,
    };
    assert_eq!(world.processes[0].calls, [expected]);
}

#[test]
fn a_request_that_nothing_can_answer_is_refused_with_the_nearest_service() {
    let mut world = world();
    let mut refused = |node, service| call(&mut world, node, service).unwrap_err();
    let (reason, hint) = refused("planner", "pln");
    assert_eq!(reason, "node `planner` has no service `pln`");
    assert_eq!(hint.as_deref(), Some("did you mean `plan`?"));
    let (reason, hint) = refused("sink", "plan");
    assert_eq!(reason, "node `sink` has no service `plan`");
    assert!(hint.is_some_and(|hint| hint.starts_with("it has none")));
    world.exit(0, End::Signal(9));
    let (reason, hint) = call(&mut world, "planner", "plan").unwrap_err();
    assert_eq!(reason, "node `planner` does not run");
    assert!(hint.is_some_and(|hint| hint.contains("nervure node start planner")));
}

fn publish(world: &mut World, node: &str, name: &str) {
    world.give(Event::ClientMessage {
        client: 1,
        pid: 1001,
        message: Message::Publish(Publish {
            node: node.to_owned(),
            name: name.to_owned(),
            value: json!(6),
        }),
    });
}

fn last_reply(world: &World) -> Answer {
    world.replies[&1].last().unwrap().clone()
}

#[test]
fn a_sample_is_published_by_the_node_of_its_output_or_delivered_to_one_input() {
    let mut world = world();
    publish(&mut world, "planner", "out0");
    publish(&mut world, "sink", "in0");
    let ends: Vec<NodeEnd> = [0, 1]
        .into_iter()
        .flat_map(|node: usize| world.processes[node].publications.clone())
        .map(|publication| publication.at)
        .collect();
    assert_eq!(ends, [NodeEnd::Output(0), NodeEnd::Input(0)]);
    let id = world.processes[0].publications[0].id;
    let published = Published {
        queued: 1,
        missed: 0,
    };
    // Another node cannot answer in its place.
    for node in [1, 0] {
        let before = world.replies[&1].len();
        world.give(Event::Message {
            node,
            message: node_to_keeper::Message::Published(node_to_keeper::Published {
                id,
                result: Ok(published),
            }),
        });
        assert_eq!(world.replies[&1].len() - before, usize::from(node == 0));
    }
    assert_eq!(last_reply(&world), Answer::Published(published));
    world.exit(1, End::Signal(9));
    let Answer::Refused(refused) = last_reply(&world) else {
        panic!("{:?}", last_reply(&world));
    };
    assert_eq!(
        refused.reason,
        "node `sink` ended before it published the sample"
    );
    publish(&mut world, "planner", "outt0");
    let Answer::Refused(refused) = last_reply(&world) else {
        panic!("{:?}", last_reply(&world));
    };
    assert_eq!(
        (refused.reason.as_str(), refused.hint.as_deref()),
        (
            "node `planner` has no output or input `outt0`",
            Some("did you mean `out0`?")
        )
    );
}
