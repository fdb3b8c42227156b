//! Supervision of nodes: stale inputs, late loops, hangs, slow starts.

use rustix::process::Signal;
use serde_json::json;

use crate::dataflow::Dataflow;

#[test]
fn each_silence_of_a_producer_is_noticed() {
    let mut run = Dataflow::new()
        .node("source", "source 1000000 5", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": {"source": "source/out", "expect_every": "300ms"}}}),
        )
        .run(&[]);
    let source = run.started("source");
    for _ in 0..2 {
        run.line("sink", "in ");
        source.signal(Signal::STOP);
        let millis: u64 = run.line("sink", "STALE in 1 ").parse().unwrap();
        assert!(millis >= 300, "{millis}");
        let millis: u64 = run.line("sink", "STALE in 2 ").parse().unwrap();
        assert!(millis >= 600, "{millis}");
        source.signal(Signal::CONT);
    }
    run.line("sink", "in ");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let unmet = &outcome.summary()["unmet"][0];
    assert_eq!(
        (&unmet["kind"], &unmet["input"]),
        (&json!("stale"), &json!("sink/in"))
    );
    assert!(unmet["count"].as_u64().unwrap() >= 4, "{unmet}");
    assert_eq!(outcome.summary()["edges"][0]["stale"], unmet["count"]);
}

#[test]
fn a_missing_first_sample_is_noticed_until_the_input_closes() {
    let mut run = Dataflow::new()
        .node("source", "idle", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "sink",
            json!({"inputs": {
            "in": {"source": "source/out", "expect_every": "20ms"}, "tick": "nervure/timer/secs/1000"}}),
        )
        .run(&[]);
    run.line("sink", "STALE in 3 ");
    run.started("source").signal(Signal::KILL);
    run.line("sink", "INPUT_CLOSED in");
    run.signal(Signal::INT);
    let outcome = run.finish();
    let lines = outcome.lines("sink");
    let closed = lines
        .iter()
        .position(|line| *line == "INPUT_CLOSED in")
        .unwrap();
    assert!(
        lines[closed..]
            .iter()
            .all(|line| !line.starts_with("STALE")),
        "{lines:?}"
    );
}

#[test]
fn a_queued_sample_of_a_busy_node_is_not_stale() {
    // The node needs three times `expect_every` for a sample.
    let outcome = Dataflow::new()
        .node("source", "source 8 5", json!({"outputs": ["out"]}))
        .node("sink", "sink 120", json!({"inputs": {
            "in": {"source": "source/out", "queue_policy": "block", "queue_size": 2, "expect_every": "40ms"}}}))
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines = outcome.lines("sink");
    let first = lines.iter().position(|line| *line == "in 0").unwrap();
    let last = lines.iter().position(|line| *line == "in 7").unwrap();
    assert!(last - first >= 7, "{lines:?}");
    assert!(
        lines[first..last]
            .iter()
            .all(|line| line.starts_with("in ")),
        "{lines:?}"
    );
}

#[test]
fn a_late_loop_gets_its_overrun() {
    let keys = |finish_within: &str| json!({"inputs": {"tick": "nervure/timer/hz/10"}, "loop": {"input": "tick", "finish_within": finish_within}});
    let mut run = Dataflow::new()
        .node("slow", "sink 30", keys("5ms"))
        .node("relaxed", "sink 30", keys("1h"))
        .run(&[]);
    for number in 1..=3 {
        let late: u64 = run
            .line("slow", &format!("DEADLINE_MISSED tick {number} "))
            .parse()
            .unwrap();
        assert!(late >= 25, "{late}");
    }
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        !outcome
            .lines("relaxed")
            .iter()
            .any(|line| line.starts_with("DEADLINE_MISSED"))
    );
    let unmet = &outcome.summary()["unmet"];
    assert_eq!(unmet.as_array().unwrap().len(), 1, "{unmet}");
    assert_eq!(
        (&unmet[0]["kind"], &unmet[0]["input"]),
        (&json!("deadline_missed"), &json!("slow/tick"))
    );
    assert!(unmet[0]["count"].as_u64().unwrap() >= 3);
    assert!(unmet[0]["max_overrun_nanos"].as_u64().unwrap() >= 25_000_000);
}

#[test]
fn a_node_that_hangs_is_examined_and_restarted() {
    let mut run = Dataflow::new()
        .node("source", "source 1000000 5", json!({"outputs": ["out"]}))
        .node(
            "planner",
            "hang",
            json!({
            "inputs": {"in": "source/out"},
            "outputs": ["out"],
            "health_check_timeout": "200ms",
            "restart_policy": "on-failure",
            "restart_delay": "1ms"}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "planner/out"}}))
        .run(&[]);
    run.line("planner", "it hangs: no sign of life for");
    let threads = run.line("planner", "thread ");
    assert!(threads.contains("(test_node): S (sleeping)"), "{threads}");
    run.line(
        "planner",
        "for its stacks, attach to it before its timeout: `gdb -p`",
    );
    let reason = run.line("sink", "NODE_FAILED planner [\"in\"]");
    assert!(
        reason.contains("it hangs") && reason.contains("(`health_check_timeout` is 200ms)"),
        "{reason}"
    );
    run.line("planner", "ready 1");
    run.line("planner", "in ");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(
        (outcome.code, outcome.ends("planner").len()),
        (Some(0), 2),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_waiting_command_does_not_hang() {
    let watched = |mut keys: serde_json::Value| {
        keys["health_check_timeout"] = json!("50ms");
        keys
    };
    // One node waits for a sample, one for room in a queue, and one polls for Stop.
    let mut run = Dataflow::new()
        .node("silent", "idle", json!({"outputs": ["out"]}))
        .node(
            "waiting",
            "idle",
            watched(json!({"inputs": {"in": "silent/out"}})),
        )
        .node(
            "sender",
            "source 1000000",
            watched(json!({"outputs": ["out"]})),
        )
        .node(
            "deaf",
            "deaf",
            json!({"inputs": {"in": {"source": "sender/out", "queue_policy": "block"}}}),
        )
        .run(&["--stop-after", "1s", "--grace", "200ms"]);
    run.until("readiness", |message| message["message"] == "ready");
    let outcome = run.finish();
    for node in ["waiting", "sender"] {
        assert_eq!(
            outcome.ends(node)[0]["failed"],
            false,
            "{:?}",
            outcome.lines(node)
        );
    }
}

#[test]
fn a_process_stopped_while_it_waits_hangs_at_its_next_event() {
    let keys =
        |inputs: serde_json::Value| json!({"inputs": inputs, "health_check_timeout": "500ms"});
    let mut run = Dataflow::new()
        .node("source", "source 1000000 5", json!({"outputs": ["out"]}))
        .node("by_sample", "idle", keys(json!({"in": "source/out"})))
        .node(
            "by_timer",
            "idle",
            keys(json!({"tick": "nervure/timer/hz/20"})),
        )
        .run(&[]);
    // A node is not checked before it has connected.
    run.until("readiness", |message| message["message"] == "ready");
    for node in ["by_sample", "by_timer"] {
        run.started(node).signal(Signal::STOP);
        let ended = run.ended(node);
        assert!(
            ended["reason"].as_str().unwrap().contains("it hangs"),
            "{ended}"
        );
    }
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(3));
}

#[test]
fn a_node_that_does_not_start_in_time_is_killed() {
    let script = "import time\nprint('imports', flush=True)\ntime.sleep(1000)\n";
    let outcome = Dataflow::new()
        .python(
            "slow",
            script,
            json!({"outputs": ["out"], "startup_timeout": "100ms"}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "slow/out"}}))
        .run(&[])
        .finish();
    let reason = outcome.ends("slow")[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("it has not connected within 100ms (`startup_timeout`)"),
        "{reason}"
    );
    assert!(outcome.lines("sink").contains(&"INPUT_CLOSED in"));
    assert_eq!(outcome.code, Some(3));
}
