//! Requests of tools to services.

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Call, Hello, Message},
    keeper_to_cli::Message as Answer,
    keeper_to_node,
    wiring::ServiceSpec,
};
use serde_json::json;

use super::{World, drop_oldest, node};
use crate::{machine::End, plan::RestartPolicy::Never};

fn world() -> World {
    let mut planner = node("planner", Never);
    planner.services = vec![ServiceSpec {
        name: "plan".to_owned(),
        clients: Vec::new(),
        tools: Some(1),
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
