//! What nodes print, as samples of the dataflow.

use serde_json::{Value, json};

use crate::dataflow::Dataflow;

#[test]
fn lines_of_a_node_reach_its_readers_until_it_ends() {
    let printer = json!({
        "inputs": {"in": {"source": "feed/out", "queue_policy": "block"}},
        "outputs": ["lines", "records"],
        "send_stdout_as": "lines",
        "send_logs_as": "records"});
    let outcome = Dataflow::new()
        .node("feed", "source 3", json!({"outputs": ["out"]}))
        .node("printer", "sink", printer)
        .node(
            "lines",
            "texts",
            json!({"inputs": {"line": "printer/lines"}}),
        )
        .node(
            "records",
            "texts",
            json!({"inputs": {"own": "printer/records", "all": "dora/logs/stdout/printer"}}),
        )
        .run(&[])
        .finish();
    let expected = [
        "in 0",
        "in 1",
        "in 2",
        "INPUT_CLOSED in",
        "STOP all inputs are closed",
    ];
    let lines = expected.map(|line| format!("line {line}"));
    assert_eq!(outcome.lines("lines"), lines, "{}", outcome.stderr);
    for input in ["own ", "all "] {
        let lines = outcome.lines("records");
        let records = lines.iter().filter_map(|line| line.strip_prefix(input));
        let messages: Vec<String> = records
            .map(|record| {
                let record: Value = serde_json::from_str(record).unwrap();
                assert_eq!(record["node_id"], "printer");
                record["message"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(messages, expected, "{input}");
    }
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}
