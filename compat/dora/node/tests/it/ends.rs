//! Ends and silence of inputs, as dora 1.1 has them.
//!
//! With dora's command in `NERVURE_DORA`, and the tests' programs `conformance` and `node` built with dora's
//! own crates in the folder `NERVURE_DORA_NODES`, the same is checked of dora itself.

use serde_json::json;

use crate::dataflow::{Dataflow, Host, text};

fn lossless(source: &str) -> serde_json::Value {
    json!({"source": source, "queue_size": 100})
}

/// A tick at the start, and none after it.
fn tick() -> serde_json::Value {
    json!("dora/timer/secs/1000")
}

#[derive(Clone, Copy, Debug)]
enum Language {
    Rust,
    C,
}

/// Runs a check under each host, with a receiver in each language.
fn with_each(check: impl Fn(Host, Language)) {
    for host in Host::all() {
        for language in [Language::Rust, Language::C] {
            eprintln!("under {host:?}, {language:?}");
            check(host.clone(), language);
        }
    }
}

fn receiver(
    dataflow: Dataflow,
    language: Language,
    role: &str,
    inputs: serde_json::Value,
    outputs: &[&str],
) -> Dataflow {
    match language {
        Language::Rust => dataflow.rust("receiver", role, inputs, outputs),
        Language::C => dataflow.c("receiver", role, inputs, outputs),
    }
}

#[test]
fn samples_that_are_queued_at_an_order_to_stop_follow_it() {
    with_each(|host, language| {
        let inputs = json!({"numbers": lossless("sender/numbers")});
        let dataflow =
            Dataflow::under(host).rust("sender", "eight", json!({"tick": tick()}), &["numbers"]);
        let dataflow = receiver(dataflow, language, "late", inputs, &[]);
        let output = dataflow.interrupt_after(&["sender", "receiver"]);
        let (stop, end) = match language {
            Language::Rust => ("Stop(Manual)", "closed: true true"),
            Language::C => ("stop 0", "end 1"),
        };
        let number = |number: u8| match language {
            Language::Rust => format!("numbers: UInt8 [{number}] {{}}"),
            Language::C => format!("numbers: 1 {number}"),
        };
        let mut expected = vec![number(0), stop.to_owned()];
        expected.extend((1..8).map(number));
        expected.push(end.to_owned());
        assert_eq!(dataflow.seen("receiver"), expected, "{}", text(&output));
    });
}

#[test]
fn an_input_is_closed_while_it_is_silent_and_not_before_its_first_sample() {
    with_each(|host, language| {
        // The timeout is far longer than the delays of a loaded machine's scheduler.
        let input = json!({"source": "sender/numbers", "input_timeout": 1.5});
        let is_nervure = host.is_nervure();
        let dataflow = Dataflow::under(host)
            .key("health_check_interval", json!(0.1))
            .rust(
                "sender",
                "pauses",
                json!({"tick": tick(), "closed": "receiver/closed"}),
                &["numbers"],
            );
        let dataflow = receiver(
            dataflow,
            language,
            "reporter",
            json!({"numbers": input}),
            &["got", "closed"],
        );
        let output = dataflow.run();
        let (recovered, stop) = match language {
            Language::Rust => (
                r#"InputRecovered { id: DataId("numbers") }"#,
                "Stop(AllInputsClosed)",
            ),
            Language::C => ("Unknown", "Stop"),
        };
        let closed = match language {
            Language::Rust => r#"InputClosed { id: DataId("numbers") }"#,
            Language::C => "InputClosed",
        };
        let mut expected = Vec::new();
        for number in 0..3 {
            if number > 0 {
                expected.push(recovered.to_owned());
            }
            expected.push(match language {
                Language::Rust => format!("numbers: UInt8 [{number}] {{}}"),
                Language::C => "Input".to_owned(),
            });
            expected.push(closed.to_owned());
        }
        expected.push(stop.to_owned());
        let mut seen = dataflow.seen("receiver");
        if !is_nervure {
            // Under dora a recovery and the number that brings it come in any order.
            for part in [&mut expected, &mut seen] {
                part.split_mut(|line| line == closed)
                    .for_each(<[String]>::sort);
            }
        }
        assert_eq!(seen, expected, "{}", text(&output));
    });
}

#[test]
fn an_output_can_be_closed_while_its_node_goes_on() {
    with_each(|host, language| {
        let dataflow = Dataflow::under(host).rust(
            "sender",
            "closer",
            json!({"got": "receiver/got", "closed": "receiver/closed"}),
            &["a", "b"],
        );
        let inputs = json!({"a": "sender/a", "b": "sender/b"});
        let outputs = ["got", "closed"];
        let dataflow = receiver(dataflow, language, "reporter", inputs, &outputs);
        let output = dataflow.run();
        let expected = match language {
            Language::Rust => [
                "a: UInt8 [1] {}",
                r#"InputClosed { id: DataId("a") }"#,
                "b: UInt8 [1] {}",
                r#"InputClosed { id: DataId("b") }"#,
                "Stop(AllInputsClosed)",
            ],
            Language::C => ["Input", "InputClosed", "Input", "InputClosed", "Stop"],
        };
        assert_eq!(dataflow.seen("receiver"), expected, "{}", text(&output));
    });
}

#[test]
fn outputs_are_closed_when_the_sending_half_of_a_node_is_dropped() {
    for host in Host::all() {
        let dataflow = Dataflow::under(host)
            .rust(
                "sender",
                "half",
                json!({"got": "receiver/got"}),
                &["numbers"],
            )
            .rust(
                "receiver",
                "reporter",
                json!({"numbers": "sender/numbers"}),
                &["got", "closed"],
            );
        let output = dataflow.run();
        let expected = [
            r#"InputClosed { id: DataId("got") }"#,
            "Stop(AllInputsClosed)",
        ];
        assert_eq!(dataflow.seen("sender"), expected, "{}", text(&output));
    }
}
