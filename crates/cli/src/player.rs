//! The node that plays a recording. `nervure replay` starts it.

use std::{process::ExitCode, time::Duration};

use nervure_node::Node;
use nervure_recorder::{End, PlayOptions, PlayReport, play as play_recording};

use crate::{
    failure::{Failure, IMPERFECT},
    info,
    record::arguments::{PlayerArguments, Rate},
};

/// Plays a recording, and prints a summary.
pub fn play(arguments: &PlayerArguments) -> Result<ExitCode, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::internal(error.to_string());
    let recording = info::open(&arguments.recordings, &arguments.playing.definitions)?;
    let node = Node::connect().map_err(|error| failed(&error))?;
    let options = PlayOptions {
        rate: match arguments.playing.rate {
            Rate::Times(times) => Some(times),
            Rate::Max => None,
        },
        repeat: arguments.playing.r#loop,
        drives_clock: arguments.playing.clock,
        renamed: arguments.playing.rename.iter().cloned().collect(),
    };
    let mut warn = |text: &str| note!("WARNING: {text}");
    let report =
        play_recording(node, &recording, &options, &mut warn).map_err(|error| failed(&error))?;
    note!("{}", conclusion(&report));
    let is_cut_short = matches!(recording.end(), End::CutShort { .. }) && !report.is_stopped;
    let is_incomplete = is_cut_short
        || !recording.left_out().is_empty()
        || !report.skipped.is_empty()
        || report.damaged > 0
        || (report.samples == 0 && !report.is_stopped);
    Ok(if is_incomplete {
        ExitCode::from(IMPERFECT)
    } else {
        ExitCode::SUCCESS
    })
}

fn conclusion(report: &PlayReport) -> String {
    let mut text = format!("{} samples played", report.samples);
    if report.rounds > 1 {
        text += &format!(" in {} rounds", report.rounds);
    }
    if let Some(latest) = report.latest {
        text += &format!(", {} late at most", millis(latest));
    }
    let mut waited: Vec<_> = report.waited.iter().collect();
    waited.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
    for (consumer, time) in waited {
        text += &format!("; waited {} for {consumer}", millis(*time));
    }
    for (topic, (count, reason)) in &report.skipped {
        text += &format!("; {count} of {topic} not played");
        if !reason.is_empty() {
            text += &format!(": {reason}");
        }
    }
    if report.damaged > 0 {
        text += &format!("; {} damaged parts of the file not played", report.damaged);
    }
    text
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
