//! Processes that the keeper does not start, and that join as nodes.

use std::time::Duration;

use nervure_protocol::{
    VERSIONS,
    cli_to_keeper::{Attach, Hello, Message, NodeOrder},
    keeper_to_cli::Message as Answer,
    node_to_keeper,
    report::EndCause,
};

use super::{World, block, drop_oldest, node, world::TOKEN, world::dynamic};
use crate::{
    machine::{End, Event},
    plan::RestartPolicy::{Never, OnFailure},
};

/// A camera, a plot that joins by itself and reads from it, and a light that the plot switches.
fn plot(to_plot: fn(usize, usize) -> (usize, usize, nervure_protocol::wiring::Policy)) -> World {
    let nodes = vec![node("camera", Never), dynamic("plot"), node("light", Never)];
    World::running(nodes, &[to_plot(0, 1), drop_oldest(1, 2)])
}

fn ask(world: &mut World, client: usize, message: Message) -> Result<(), String> {
    if !world.replies.contains_key(&client) {
        let hello = Hello {
            versions: VERSIONS,
            program: "attach".to_owned(),
        };
        world.ask(client, Message::Hello(hello));
    }
    match world.ask(client, message) {
        Answer::Done | Answer::Attached(_) => Ok(()),
        Answer::Refused(refused) => Err(refused.reason),
        other => panic!("{other:?}"),
    }
}

fn attach(world: &mut World, client: usize, node: &str, leave_stopped: bool) -> Result<(), String> {
    let attach = Attach {
        node: node.to_owned(),
        token: format!("of {client}"),
        leave_stopped,
    };
    ask(world, client, Message::Attach(attach))
}

fn order(world: &mut World, node: &str, order: NodeOrder) -> Result<(), String> {
    ask(
        world,
        99,
        Message::Node {
            node: node.to_owned(),
            order,
        },
    )
}

#[test]
fn neither_the_start_nor_a_producer_waits_for_a_dynamic_node() {
    let mut world = plot(block);
    assert!(world.is_ready && world.output(0).is_none() && world.processes[2].over.is_empty());
    let joined = world.join(1, "plot", TOKEN).unwrap();
    assert_eq!(joined, 1);
    assert!(world.processes[1].has_started);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    assert_eq!(world.output(1).map(|(edge, _)| edge), world.input(2));
}

#[test]
fn a_neighbour_has_the_edge_for_an_answer_before_that_for_a_request() {
    let nodes = vec![node("server", Never), dynamic("client")];
    // The edge for requests comes first in the plan.
    let mut world = World::running(nodes, &[drop_oldest(1, 0), drop_oldest(0, 1)]);
    world.join(1, "client", TOKEN).unwrap();
    let (answers, _) = world.output(0).unwrap();
    // Edges are numbered as they are made.
    assert!(answers < world.input(0).unwrap());
}

#[test]
fn its_death_is_a_failure_and_another_process_may_join() {
    let mut world = plot(block);
    world.join(1, "plot", TOKEN).unwrap();
    world.give(Event::ClientGone { client: 1 });
    let ended = world.ended.last().unwrap();
    assert!(
        ended.failed && !ended.restarts && ended.cause == EndCause::Ended,
        "{ended:?}"
    );
    assert_eq!(world.processes[2].events.last().unwrap().0, "NODE_FAILED");
    assert!(world.output(0).is_none(), "the camera does not wait");
    assert!(
        world.processes[2].over.is_empty() && world.input(2).is_none(),
        "the light goes on waiting"
    );
    world.advance(Duration::from_secs(1000));
    assert!(!world.is_finished && world.signals.is_empty());
    world.join(2, "plot", TOKEN).unwrap();
    assert_eq!(
        world.processes[2].events.last().unwrap().0,
        "NODE_RESTARTED"
    );
    assert_eq!(
        world.processes[2]
            .inputs
            .values()
            .next()
            .unwrap()
            .incarnation,
        1
    );
}

#[test]
fn one_that_says_goodbye_has_not_failed() {
    let mut world = plot(drop_oldest);
    world.join(1, "plot", TOKEN).unwrap();
    world.message(1, node_to_keeper::Message::Goodbye { cut_short: false });
    let ended = world.ended.last().unwrap();
    assert!(!ended.failed && ended.cause == EndCause::Left, "{ended:?}");
    assert!(!world.replies.contains_key(&1), "its connection is closed");
    world.join(2, "plot", TOKEN).unwrap();
}

#[test]
fn only_one_at_a_time_with_the_token_and_where_the_file_says_so() {
    let mut world = plot(drop_oldest);
    assert_eq!(
        world.join(1, "plot", ""),
        Err("the token does not open node `plot`".to_owned())
    );
    assert_eq!(
        world.join(1, "graph", TOKEN),
        Err("there is no node `graph`".to_owned())
    );
    assert_eq!(
        world.join(1, "camera", TOKEN),
        Err("node `camera` is started by its keeper".to_owned())
    );
    world.join(1, "plot", TOKEN).unwrap();
    assert_eq!(
        world.join(2, "plot", TOKEN),
        Err("node `plot` is taken: process 1001 is it".to_owned())
    );
}

#[test]
fn it_can_be_stopped_and_not_started_by_hand() {
    let mut world = plot(drop_oldest);
    assert!(
        order(&mut world, "plot", NodeOrder::Start)
            .unwrap_err()
            .contains("`path: dynamic`")
    );
    world.join(1, "plot", TOKEN).unwrap();
    order(&mut world, "plot", NodeOrder::Stop).unwrap();
    assert!(world.processes[1].stop.is_some());
    world.advance(Duration::from_secs(5));
    assert!(!world.replies.contains_key(&1), "it did not leave in time");
    assert!(!world.ended.last().unwrap().failed && world.signals.is_empty());
    world.join(2, "plot", TOKEN).unwrap();
}

#[test]
fn a_dataflow_ends_without_its_dynamic_nodes() {
    let mut world = plot(drop_oldest);
    world.exit(0, End::Code(0));
    world.exit(2, End::Code(0));
    assert!(world.is_finished);

    let mut world = plot(drop_oldest);
    world.join(1, "plot", TOKEN).unwrap();
    world.exit(0, End::Code(0));
    world.exit(2, End::Code(0));
    assert!(
        world.processes[1].stop.is_none() && world.processes[1].over.contains(&0),
        "it drains"
    );
    assert!(!world.is_finished);
    world.message(1, node_to_keeper::Message::Goodbye { cut_short: false });
    assert!(world.is_finished);

    let mut world = plot(drop_oldest);
    world.join(1, "plot", TOKEN).unwrap();
    ask(
        &mut world,
        99,
        Message::Stop {
            reason: "by hand".to_owned(),
        },
    )
    .unwrap();
    assert!(world.processes[1].stop.is_some());
    world.exit(0, End::Code(0));
    world.exit(2, End::Code(0));
    world.advance(Duration::from_secs(5));
    assert!(world.is_finished && world.signals.is_empty());
    assert!(!world.ended.last().unwrap().failed);
}

#[test]
fn one_that_breaks_the_protocol_is_cut_off_and_has_failed() {
    let mut world = plot(drop_oldest);
    world.join(1, "plot", TOKEN).unwrap();
    world.give(Event::Misbehaved {
        node: 1,
        what: "noise".to_owned(),
    });
    assert!(!world.replies.contains_key(&1) && world.signals.is_empty());
    assert!(
        world
            .ended
            .last()
            .unwrap()
            .reason
            .starts_with("cut off by the keeper")
    );
}

fn two() -> World {
    World::running(
        vec![node("camera", Never), node("sink", OnFailure)],
        &[block(0, 1)],
    )
}

#[test]
fn an_attached_program_takes_the_place_of_the_node_and_gives_it_back() {
    let mut world = two();
    attach(&mut world, 1, "sink", false).unwrap();
    assert!(world.processes[1].stop.is_some());
    assert_eq!(
        world.join(2, "sink", "of 1"),
        Err("node `sink` is taken: process 1 is it".to_owned())
    );
    world.exit(1, End::Code(0));
    assert!(world.output(0).unwrap().1, "the edge stays, and waits");
    assert_eq!(
        world.join(2, "sink", TOKEN),
        Err("the token does not open node `sink`".to_owned())
    );
    world.join(2, "sink", "of 1").unwrap();
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    world.give(Event::ClientGone { client: 2 });
    assert!(world.ended.last().unwrap().failed && !world.processes[1].runs);
    world.join(3, "sink", "of 1").unwrap();
    world.give(Event::ClientGone { client: 1 });
    assert!(
        world.processes[1].stop.is_some() && world.processes[1].guest.is_some(),
        "it counts until it leaves"
    );
    world.give(Event::ClientGone { client: 3 });
    assert!(!world.ended.last().unwrap().failed, "it was sent away");
    assert!(
        world.processes[1].runs && world.processes[1].guest.is_none(),
        "its own program runs again"
    );
    world.hello(1);
    assert_eq!(world.output(0), world.input(1).map(|edge| (edge, false)));
    assert!(
        world.join(4, "sink", "of 1").is_err(),
        "the token has ended"
    );
}

/// Otherwise two processes would take from one edge, and the second would start from counters that
/// the first still changes.
#[test]
fn a_node_that_is_given_back_starts_when_the_joined_process_has_left_or_is_disconnected() {
    let mut world = two();
    attach(&mut world, 1, "sink", false).unwrap();
    world.exit(1, End::Code(0));
    world.join(2, "sink", "of 1").unwrap();
    world.give(Event::ClientGone { client: 1 });
    world.advance(Duration::from_millis(4900));
    assert_eq!(world.processes[1].guest, Some(2), "it has not left");
    world.advance(Duration::from_millis(200));
    assert!(
        world.processes[1].runs && world.processes[1].guest.is_none(),
        "it had its grace"
    );
}

#[test]
fn an_attachment_keeps_others_away_and_may_leave_the_node_stopped() {
    let mut world = two();
    attach(&mut world, 1, "sink", true).unwrap();
    assert_eq!(
        attach(&mut world, 2, "sink", false),
        Err("`attach@1001` is attached to node `sink`".to_owned())
    );
    assert!(order(&mut world, "sink", NodeOrder::Restart).is_err());
    world.exit(1, End::Code(0));
    world.give(Event::ClientGone { client: 1 });
    assert!(!world.processes[1].runs);
    order(&mut world, "sink", NodeOrder::Start).unwrap();
    assert!(world.processes[1].runs);
}

#[test]
fn a_node_is_started_again_when_its_client_dies_before_the_node_has_ended() {
    let mut world = two();
    attach(&mut world, 1, "sink", false).unwrap();
    world.give(Event::ClientGone { client: 1 });
    world.exit(1, End::Code(0));
    assert!(world.processes[1].runs, "started again at once");
}

#[test]
fn a_node_that_had_ended_or_was_stopped_can_be_attached_to() {
    let mut world = two();
    world.exit(0, End::Code(0));
    attach(&mut world, 1, "camera", false).unwrap();
    world.processes[1].may_reopen = true;
    world.join(2, "camera", "of 1").unwrap();
    assert_eq!(world.output(0).map(|(edge, _)| edge), world.input(1));
    world.give(Event::ClientGone { client: 1 });
    assert!(world.processes[0].runs);

    let mut world = two();
    ask(
        &mut world,
        98,
        Message::Stop {
            reason: "by hand".to_owned(),
        },
    )
    .unwrap();
    assert_eq!(
        attach(&mut world, 1, "sink", false),
        Err("the dataflow is stopping".to_owned())
    );
}

#[test]
fn a_joined_process_gets_stop_and_is_disconnected_after_the_grace_period() {
    let mut world = two();
    attach(&mut world, 1, "sink", false).unwrap();
    world.exit(1, End::Code(0));
    world.join(2, "sink", "of 1").unwrap();
    ask(
        &mut world,
        99,
        Message::Stop {
            reason: "by hand".to_owned(),
        },
    )
    .unwrap();
    assert!(world.processes[1].stop.is_some());
    world.exit(0, End::Code(0));
    world.give(Event::ClientGone { client: 1 });
    assert!(!world.is_finished, "its program ends in its own time");
    world.advance(Duration::from_secs(5));
    assert!(world.is_finished && world.signals.is_empty());
}

#[test]
fn a_joined_process_has_no_health_checks() {
    let mut watched = node("sink", OnFailure);
    watched.settings.startup_timeout = Some(Duration::from_secs(1));
    watched.settings.health_check_timeout = Some(Duration::from_secs(1));
    let mut world = World::running(vec![node("camera", Never), watched], &[drop_oldest(0, 1)]);
    attach(&mut world, 1, "sink", false).unwrap();
    world.exit(1, End::Code(0));
    world.join(2, "sink", "of 1").unwrap();
    world.advance(Duration::from_secs(100));
    assert!(world.processes[1].runs, "it may stand still in a debugger");
}
