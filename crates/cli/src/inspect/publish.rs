//! `nervure topic pub`: publishes samples.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use nervure_inspect::{
    answers, format,
    publishing::{End, Publishing},
};
use serde_json::json;

use super::{arguments::PublishArguments, service::read_value};
use crate::{failure::Failure, output};

/// Publishes once, or at a rate until Ctrl-C or `--count`.
pub fn publish(arguments: &PublishArguments) -> Result<ExitCode, Failure> {
    let value = read_value(&arguments.value)?;
    let topic = &arguments.topic;
    let dataflow = arguments.target.dataflow.as_deref();
    let mut publishing = Publishing::open(topic, dataflow, value, "publish")?;
    let count = match (arguments.count, arguments.rate) {
        (Some(count), _) => count,
        (None, Some(_)) => u64::MAX,
        (None, None) => 1,
    };
    let period = Duration::from_secs_f64(1.0 / arguments.rate.unwrap_or(1.0));
    let mut due = Instant::now();
    for number in 0..count {
        if number > 0 {
            due += period;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let published = publishing.publish()?;
        output::write_or_end(&match arguments.target.json {
            true => answers::line(&json!({
                "topic": topic,
                "consumers": published.queued,
                "missed": published.missed,
            })),
            false => {
                let consumers = format::count(published.queued as usize, "consumer");
                let missed = match published.missed {
                    0 => String::new(),
                    missed => format!(", {missed} missed it: a queue was full"),
                };
                match publishing.end {
                    End::Output => format!("{topic}: published, {consumers}{missed}\n"),
                    End::Input => format!("{topic}: delivered\n"),
                }
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
