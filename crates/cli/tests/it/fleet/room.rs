//! A stream without room, and the other topics of its node.

use super::*;

/// Samples that find room while the consumer takes none: in its queue, both ends of the link and the queue of
/// the stand-in of the source, and one in the hands of each stand-in.
fn room(queue_size: usize) -> usize {
    4 * queue_size + 2
}

/// Starts a source whose output `held` has a consumer that takes nothing until the returned file exists.
/// Its stream keeps all, and has a lifespan, so that its samples are not confirmed.
fn start_held(fleet: &Fleet, queue_size: usize) -> PathBuf {
    let file = fleet.folder.path().join("take");
    let node = |id: &str, arguments: &str, input: Value| json!({"id": id, "machine": "edge", "path": test_node(), "args": arguments, "inputs": {"in": input}});
    let held = json!({"source": "source/held", "queue_policy": "block", "queue_size": queue_size, "qos": {"lifespan": "600s"}});
    fleet.start(&json!({
        "machines": {"robot": {}, "edge": {}},
        "nodes": [
            {"id": "source", "machine": "robot", "path": test_node(), "args": "two-sources", "outputs": ["held", "free"]},
            node("late", &format!("late-sink {}", file.display()), held),
            node("sink", "sink 0", json!("source/free")),
        ],
    }));
    fleet.await_that("the stream is full", |fleet| {
        sent(fleet, "held").len() == room(queue_size)
    });
    file
}

/// The numbers behind a word in the lines of a node.
fn numbers_of(fleet: &Fleet, (at, node): (usize, &str), word: &str) -> Vec<u64> {
    let number = |line: String| line.strip_prefix(word)?.trim_start().parse().ok();
    fleet
        .printed(at, node)
        .into_iter()
        .filter_map(number)
        .collect()
}

fn sent(fleet: &Fleet, output: &str) -> Vec<u64> {
    numbers_of(fleet, (1, "source"), output)
}

/// Stops the dataflow. Checks that the samples of `held` are delivered or lost, but for one that its producer
/// may publish while its stand-in leaves.
fn stop(fleet: &Fleet) {
    let stopped = fleet.json(0, &["stop", "-d", &fleet.dataflow, "--json"]);
    let streams = stopped["streams"].as_array().unwrap();
    let stream = streams
        .iter()
        .find(|it| it["topic"] == "source/held")
        .unwrap();
    let count = |value: &Value| value.as_i64().unwrap_or(0);
    let lost = stream["lost"].as_object().unwrap();
    let (before, on_link): (Vec<_>, Vec<_>) = lost
        .iter()
        .partition(|(cause, _)| ["queue", "not sent"].contains(&cause.as_str()));
    let sum = |lost: Vec<(&String, &Value)>| lost.iter().map(|(_, it)| count(it)).sum::<i64>();
    assert_eq!(
        count(&stream["accepted"]),
        count(&stream["delivered"]) + count(&stream["not_taken"]) + sum(on_link),
        "{stopped:#}"
    );
    let left = sent(fleet, "held").len() as i64 - count(&stream["accepted"]) - sum(before);
    assert!(
        (0..=1).contains(&left),
        "{left} are not counted: {stopped:#}"
    );
    fleet.check_nothing_left();
}

#[test]
fn a_topic_without_room_holds_up_no_other_of_its_node() {
    let fleet = Fleet::with_own_name(None);
    let file = start_held(&fleet, 1);
    fleet.await_samples(100);
    assert_eq!(sent(&fleet, "held").len(), room(1), "its producer waits");
    fs::write(file, "").unwrap();
    // It goes on when there is room, and has lost nothing.
    let taken = |fleet: &Fleet| numbers_of(fleet, (0, "late"), "in");
    fleet.await_that("the held samples arrive", |fleet| taken(fleet).len() > 100);
    let numbers = taken(&fleet);
    assert!(
        numbers.iter().copied().eq(0..numbers.len() as u64),
        "{numbers:?}"
    );
    stop(&fleet);
}

#[test]
fn samples_without_room_are_counted_when_the_dataflow_stops() {
    let fleet = Fleet::with_own_name(None);
    start_held(&fleet, 4);
    stop(&fleet);
}
