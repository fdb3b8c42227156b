//! Transforms between frames, in dataflows of Rust nodes.

use serde_json::json;

use crate::dataflow::Dataflow;

#[test]
fn a_node_looks_up_what_two_others_send() {
    let sends = || json!({"outputs": {"pose": {"type": "std/Transform@1"}}});
    let outcome = Dataflow::new()
        .node("localization", "pose map odom 10 20", sends())
        .node("odometry", "pose odom base 1 2", sends())
        .node("numbers", "source 3", json!({"outputs": ["out"]}))
        .node(
            "consumer",
            "look-up map base",
            json!({
                "transforms": true,
                "inputs": {"number": {"source": "numbers/out", "queue_policy": "block"}},
            }),
        )
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(
        outcome.lines("consumer"),
        [
            "0 [16.5, 0.0, 0.0]",
            "1 [16.5, 0.0, 0.0]",
            "2 [16.5, 0.0, 0.0]"
        ]
    );
}

#[test]
fn loops_of_transforms_hold_up_no_end_and_cost_no_sample() {
    let relay = |source: &str| {
        json!({
            "transforms": true,
            "inputs": {"in": {"source": source, "queue_policy": "block"}},
            "outputs": {"out": null, "pose": {"type": "std/Transform@1"}},
        })
    };
    let outcome = Dataflow::new()
        .node("numbers", "source 100", json!({"outputs": ["out"]}))
        .node("first", "pose-relay map odom map", relay("numbers/out"))
        .node("second", "pose-relay odom base map", relay("first/out"))
        .node(
            "last",
            "sink",
            json!({"inputs": {"in": {"source": "second/out", "queue_policy": "block"}}}),
        )
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.lines("first"), ["passed 100, [1.0, 0.0, 0.0]"]);
    let last = outcome.lines("last");
    assert_eq!(
        last.iter().filter(|line| line.starts_with("in ")).count(),
        100,
        "{last:?}"
    );
    assert_eq!(outcome.lines("second"), ["passed 100, [2.0, 0.0, 0.0]"]);
}
