//! The node that plays a recording. `nervure replay` starts it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use nervure_node::Node;
use nervure_recorder::{End, PlayOptions, PlayReport, play as play_recording};
use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, IMPERFECT},
    info,
    record::arguments::PlayerArguments,
};

/// Settings of the player, from `replay`.
#[derive(Debug, Serialize, Deserialize)]
pub struct PlayerSettings {
    recordings: Vec<PathBuf>,
    definitions: Vec<PathBuf>,
    rate: Option<f64>,
    repeat: bool,
    drives_clock: bool,
    renamed: BTreeMap<String, String>,
    topics: Option<BTreeSet<String>>,
    window: RangeInclusive<u64>,
    most_hz: BTreeMap<String, f64>,
}

impl PlayerSettings {
    pub fn new(recordings: Vec<PathBuf>, definitions: Vec<PathBuf>, options: &PlayOptions) -> Self {
        let PlayOptions {
            rate,
            repeat,
            drives_clock,
            renamed,
            topics,
            window,
            most_hz,
        } = options.clone();
        Self {
            recordings,
            definitions,
            rate,
            repeat,
            drives_clock,
            renamed,
            topics,
            window,
            most_hz,
        }
    }

    fn options(self) -> PlayOptions {
        PlayOptions {
            rate: self.rate,
            repeat: self.repeat,
            drives_clock: self.drives_clock,
            renamed: self.renamed,
            topics: self.topics,
            window: self.window,
            most_hz: self.most_hz,
        }
    }
}

/// Plays a recording, and prints a summary.
pub fn play(arguments: &PlayerArguments) -> Result<ExitCode, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::internal(error.to_string());
    let settings: PlayerSettings =
        serde_json::from_str(&arguments.settings).map_err(|error| failed(&error))?;
    let recording = info::open(&settings.recordings, &settings.definitions)?;
    let node = Node::connect().map_err(|error| failed(&error))?;
    let options = settings.options();
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
