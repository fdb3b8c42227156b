//! Progress of parts of dataflows on their machines, as text for users.

use std::io;

use nervure_daemon::{
    by_hand::ByHand,
    state::{ActualRun, RunState},
};
use nervure_fleet::progress::{Event, Listener, Reported};
use serde_json::json;

use crate::output;

/// Shows events as text, or reports as JSON.
pub fn listener(is_json: bool) -> Listener<'static> {
    match is_json {
        true => &show_json,
        false => &show,
    }
}

fn show(event: Event<'_>) -> io::Result<()> {
    match event {
        Event::Waiting { machines, what } => note!("waiting for {machines} to {what}"),
        Event::Replacing { name, number, of } => note!("{name}: {number} of {of}"),
        Event::Reported(reported) => show_report(&reported),
    }
    Ok(())
}

fn show_json(event: Event<'_>) -> io::Result<()> {
    match event {
        Event::Reported(Reported { machine, now, .. }) => {
            let line = json!({"message": "machine", "machine": machine, "actual": now});
            output::try_write(&format!("{line}\n"))
        }
        event => show(event),
    }
}

fn show_report(reported: &Reported<'_>) {
    let Reported {
        place, before, now, ..
    } = reported;
    // Its report is old.
    if reported.is_away {
        note!(
            "{place}: cannot be reached; it was {} when it reported last",
            run_text(now)
        );
        return;
    }
    if before.map(|run| &run.state) != Some(&now.state) {
        note!("{place}: {}", run_text(now));
    }
    for (node, state) in &now.nodes {
        if before.and_then(|run| run.nodes.get(node)) != Some(state) {
            note!("{place}: {node} {state}");
        }
    }
}

/// The state of a run in words, with a pause or stop by the user of its machine.
pub fn run_text(run: &ActualRun) -> String {
    let state = state_text(&run.state);
    let by_hand = match run.by_hand {
        None => "",
        Some(ByHand::Paused) => ", paused on the machine itself",
        Some(ByHand::Stopped) => ", stopped on the machine itself",
    };
    let orphan = match run.is_orphan {
        true => ", unknown to the coordinator's store",
        false => "",
    };
    format!("{state}{by_hand}{orphan}")
}

/// The state of a run in words.
fn state_text(state: &RunState) -> String {
    match state {
        RunState::Preparing => "preparing".to_owned(),
        RunState::Prepared => "prepared".to_owned(),
        RunState::Starting => "starting".to_owned(),
        RunState::Running { keeper } => format!("running (keeper {keeper})"),
        RunState::Waiting => "its keeper was killed; it starts again soon".to_owned(),
        RunState::Stopping => "stopping".to_owned(),
        RunState::Ended => "ended".to_owned(),
        RunState::Failed { reason } => {
            format!("failed: {}", reason.lines().next().unwrap_or_default())
        }
    }
}
