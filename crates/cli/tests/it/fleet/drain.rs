//! Dataflows on two machines that drain.

use super::*;

#[test]
fn a_dataflow_on_two_machines_drains_across_the_link() {
    let fleet = Fleet::with_own_name(None);
    let mut dataflow = numbers("source 1000000 1 100");
    // Queues are full on both sides of the link.
    dataflow["nodes"][1]["args"] = json!("sink 5");
    fleet.start(&dataflow);
    fleet.await_that("samples arrive", |fleet| received(fleet).len() > 20);
    let stopped = fleet.json(0, &["stop", "--drain=50s", "-d", &fleet.dataflow, "--json"]);
    let stream = &stopped["streams"][0];
    assert_eq!(stream["lost"], json!({}), "{stopped:#}");
    assert_eq!(stream["not_taken"], 0, "{stopped:#}");
    let numbers = received(&fleet);
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(stream["accepted"], numbers.len(), "{stopped:#}");
    fleet.check_nothing_left();
}
