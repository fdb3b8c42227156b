//! Samples are checked against the declared types of their outputs.

use serde_json::json;

use crate::dataflow::Dataflow;

#[test]
fn a_sample_that_does_not_fit_its_type_is_refused_where_it_is_sent() {
    let outputs = json!({
        "imu": {"type": "std/Imu@1"}, "pose": {"type": "my/Pose@1"}, "alone": {"type": "std/Imu@1"},
        "image": {"type": "std/Image@1"},
    });
    let block = |source: &str| json!({"source": source, "queue_policy": "block"});
    let inputs = json!({"imu": block("sensor/imu"), "pose": block("sensor/pose")});
    let outcome = Dataflow::new()
        .node("sensor", "typed", json!({"outputs": outputs}))
        .node("sink", "receive", json!({"inputs": inputs}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let misfit = "std/Imu@1, field `angular_velocity.y`: expected `float64`, found text";
    let image = "std/Image@1: expected a tensor: u1, i1, u2, i2, i4, f4, f8: \
                 height x width or height x width x channels, found";
    assert_eq!(
        outcome.lines("sensor"),
        [
            format!("the output `imu` sends {misfit}"),
            format!("the output `alone` sends {misfit}"),
            format!("the output `image` sends {image} text"),
            format!("the output `image` sends {image} a tensor of f4, 24"),
        ]
    );
    let summary = outcome.summary();
    let received = |at: usize| {
        (
            &summary["edges"][at]["sent"],
            &summary["edges"][at]["received"],
        )
    };
    assert_eq!(received(0), (&json!(2), &json!(2)), "{summary}");
    assert_eq!(received(1), (&json!(3), &json!(3)), "{summary}");
}
