//! Nodes that get another program.

use std::time::Duration;

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Hello, Message, NodeOrder, Replace},
    graph::Program,
    keeper_to_cli::Message as Answer,
};

use super::{World, block, node};
use crate::{
    machine::{End, Event},
    plan::RestartPolicy::{Never, OnFailure},
};

fn send(world: &mut World, message: Message) -> Option<Answer> {
    if !world.replies.contains_key(&1) {
        let hello = Hello {
            versions: VERSIONS,
            program: "node".to_owned(),
        };
        world.ask(1, Message::Hello(hello));
    }
    let before = world.replies[&1].len();
    world.give(Event::ClientMessage {
        client: 1,
        pid: 1001,
        message,
    });
    world.replies[&1].get(before).cloned()
}

fn replace(world: &mut World, id: &str, command: &str) -> Option<Answer> {
    send(world, request(id, command, None))
}

fn request(id: &str, command: &str, version: Option<&str>) -> Message {
    Message::Replace(Replace {
        node: id.to_owned(),
        program: Program::Command(command.to_owned()),
        args: None,
        folder: version.map(|version| format!("/programs/{version}").into()),
        version: version.map(str::to_owned),
    })
}

fn last_answer(world: &World) -> &Answer {
    world.replies[&1].last().unwrap()
}

fn refusal(answer: &Answer) -> &str {
    match answer {
        Answer::Refused(refused) => &refused.reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn runs(world: &World, node: usize) -> String {
    world.machine.plan().nodes[node].program.to_string()
}

fn two() -> World {
    let mut sink = node("sink", OnFailure);
    sink.settings.startup_timeout = Some(Duration::from_secs(1));
    World::running(vec![node("camera", Never), sink], &[block(0, 1)])
}

#[test]
fn a_new_program_takes_over_and_the_edges_stay() {
    let mut world = two();
    assert_eq!(
        replace(&mut world, "sink", "better"),
        None,
        "it is not decided yet"
    );
    assert!(world.processes[1].stop.is_some());
    world.exit(1, End::Code(0));
    assert!(
        world.output(0).unwrap().1,
        "what waits is for the new program"
    );
    assert!(world.processes[1].runs && runs(&world, 1) == "better");
    world.hello(1);
    assert_eq!(last_answer(&world), &Answer::Done);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    world.exit(1, End::Code(1));
    assert!(
        world
            .ended
            .last()
            .unwrap()
            .reason
            .contains("starts again in"),
        "by its policy, as any program"
    );
    world.advance(Duration::from_secs(1));
    assert_eq!(runs(&world, 1), "better");
}

#[test]
fn the_old_program_comes_back_when_the_new_one_does_not_connect_in_time() {
    let mut world = two();
    replace(&mut world, "sink", "better");
    world.exit(1, End::Code(0));
    world.advance(Duration::from_secs(2));
    world.exit(1, End::Signal(9));
    assert!(
        world.processes[1].runs && runs(&world, 1) == "true",
        "at once"
    );
    let reason = refusal(last_answer(&world));
    assert!(
        reason.starts_with(
            "better was not ready: killed by the keeper, because it has not connected"
        )
    );
    assert!(reason.ends_with("node `sink` runs true again"), "{reason}");
    let ended = world.ended.last().unwrap();
    assert!(
        ended.failed && ended.restarts && ended.reason.ends_with("back to true"),
        "{ended:?}"
    );
    world.hello(1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
}

#[test]
fn the_old_program_comes_back_when_the_new_one_ends_or_cannot_be_started() {
    let mut world = two();
    replace(&mut world, "camera", "worse");
    world.exit(0, End::Code(0));
    world.exit(0, End::Code(0));
    assert!(refusal(last_answer(&world)).contains("exited with code 0"));
    assert!(world.processes[0].runs && runs(&world, 0) == "true");
    world.hello(0);

    replace(&mut world, "camera", "missing");
    world.exit(0, End::Code(0));
    world.processes[0].runs = false;
    world.give(Event::NotStarted {
        node: 0,
        reason: "it is not there".to_owned(),
    });
    assert!(refusal(last_answer(&world)).contains("it could not be started: it is not there"));
    assert!(world.processes[0].runs && runs(&world, 0) == "true");
}

#[test]
fn a_node_that_does_not_run_starts_with_the_new_program() {
    let mut world = two();
    assert_eq!(
        send(
            &mut world,
            Message::Node {
                node: "sink".to_owned(),
                order: NodeOrder::Stop
            }
        ),
        Some(Answer::Done)
    );
    world.exit(1, End::Code(0));
    assert_eq!(replace(&mut world, "sink", "better"), None);
    assert!(world.processes[1].runs);
    world.hello(1);
    assert_eq!(last_answer(&world), &Answer::Done);
}

#[test]
fn one_at_a_time_and_not_while_the_dataflow_stops() {
    let mut world = two();
    replace(&mut world, "sink", "better");
    let order = Message::Node {
        node: "sink".to_owned(),
        order: NodeOrder::Restart,
    };
    for answer in [send(&mut world, order), replace(&mut world, "sink", "best")] {
        assert_eq!(
            refusal(&answer.unwrap()),
            "node `sink` gets another program, which is not ready yet"
        );
    }
    send(
        &mut world,
        Message::Stop {
            reason: "by hand".to_owned(),
        },
    );
    world.exit(1, End::Code(0));
    assert_eq!(refusal(last_answer(&world)), "the dataflow is stopping");
    assert!(!world.processes[1].runs);
    assert!(replace(&mut world, "camera", "x").is_some());
}

#[test]
fn a_node_that_runs_a_version_is_left_alone_by_another_request_for_it() {
    let mut world = two();
    let settings = |world: &World| world.machine.plan().nodes[1].settings.clone();
    let v1 = || request("sink", "better", Some("v1"));
    assert_eq!(send(&mut world, v1()), None);
    world.exit(1, End::Code(0));
    // Its client is gone, and another one asks for the same.
    world.give(Event::ClientGone { client: 1 });
    world.replies.remove(&1);
    assert_eq!(send(&mut world, v1()), None, "it is not ready yet");
    world.hello(1);
    assert_eq!(last_answer(&world), &Answer::Done);
    assert_eq!(settings(&world).version, "v1");
    assert_eq!(
        settings(&world).folder.unwrap().to_str(),
        Some("/programs/v1")
    );
    assert_eq!(send(&mut world, v1()), Some(Answer::Done));
    assert!(world.processes[1].stop.is_none() && world.processes[1].runs);

    // One that fails leaves the version before in its place.
    assert_eq!(send(&mut world, request("sink", "worse", Some("v2"))), None);
    world.exit(1, End::Code(0));
    world.exit(1, End::Code(1));
    let Answer::Refused(refused) = last_answer(&world) else {
        panic!("{:?}", last_answer(&world));
    };
    assert!(refused.rolled_back, "{refused:?}");
    world.hello(1);
    assert_eq!(send(&mut world, v1()), Some(Answer::Done));
    assert_eq!(settings(&world).version, "v1");
}

#[test]
fn a_node_can_be_stopped_while_its_new_program_is_not_ready() {
    let stop = || Message::Node {
        node: "sink".to_owned(),
        order: NodeOrder::Stop,
    };
    for is_tried in [false, true] {
        let mut world = two();
        replace(&mut world, "sink", "better");
        if is_tried {
            world.exit(1, End::Code(0));
        }
        assert_eq!(send(&mut world, stop()), Some(Answer::Done));
        world.exit(1, End::Code(0));
        assert!(!world.processes[1].runs, "tried: {is_tried}");
        assert_eq!(last_answer(&world), &Answer::Done, "it is not decided");
        let start = Message::Node {
            node: "sink".to_owned(),
            order: NodeOrder::Start,
        };
        assert_eq!(send(&mut world, start), Some(Answer::Done));
        let answers = world.replies[&1].len();
        world.hello(1);
        assert_eq!(runs(&world, 1), "better");
        assert_eq!(world.replies[&1].len(), answers + 1);
    }
}
