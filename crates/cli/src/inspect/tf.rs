//! `nervure tf`: shows the transforms between frames.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_inspect::{
    answers::{self, Frame, Frames},
    format,
    transforms::{Watched, static_transforms},
};
use nervure_node::{LookupTime, Transform};
use serde_json::json;

use super::{
    arguments::{Target, TransformAction, TransformArguments},
    lower_priority,
};
use crate::{
    failure::{Failure, IMPERFECT},
    output::{self, plain_text},
    table::{Align, Table},
};

/// Runs a subcommand of `nervure tf`.
pub fn tf(arguments: &TransformArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        TransformAction::Tree { target, window } => tree(target, *window),
        TransformAction::Echo {
            target_frame,
            source_frame,
            target,
            count,
            interval,
        } => echo(target, [target_frame, source_frame], *count, *interval),
        TransformAction::Static(target) => list(target),
    }
}

fn tree(target: &Target, window: Duration) -> Result<ExitCode, Failure> {
    let mut watched = Watched::open(target.dataflow.as_deref())?;
    lower_priority();
    watched.watch_until(Instant::now() + window)?;
    let frames = watched.frames();
    let text = match target.json {
        true => answers::line(&frames),
        false => drawn(&frames),
    };
    output::write(&text)?;
    for refused in &frames.refused {
        let count = format::count(refused.count as usize, "transform");
        let reason = plain_text(&refused.reason);
        note!("warning: {}: {count} refused: {reason}", refused.topic);
    }
    Ok(match frames.refused.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(IMPERFECT),
    })
}

/// The tree as a table, each frame below its parent.
fn drawn(frames: &Frames) -> String {
    if frames.frames.is_empty() {
        return "no transforms have come\n".to_owned();
    }
    let mut children: BTreeMap<&str, Vec<&Frame>> = BTreeMap::new();
    for frame in &frames.frames {
        children.entry(&frame.parent).or_default().push(frame);
    }
    let known: BTreeSet<&str> = frames.frames.iter().map(|it| it.frame.as_str()).collect();
    let mut table = Table::new(&[
        ("frame", Align::Left),
        ("sent by", Align::Left),
        ("rate", Align::Right),
        ("age", Align::Right),
    ]);
    // A stack, since a tree may be deeper than the stack of the thread.
    let mut open: Vec<(usize, &str, Option<&Frame>)> = children
        .keys()
        .rev()
        .filter(|root| !known.contains(*root))
        .map(|root| (0, *root, None))
        .collect();
    while let Some((depth, name, frame)) = open.pop() {
        table.row(row(depth, name, frame));
        let below = children.get(name).into_iter().flatten().rev();
        open.extend(below.map(|child| (depth + 1, child.frame.as_str(), Some(*child))));
    }
    table.render(None)
}

fn row(depth: usize, name: &str, frame: Option<&Frame>) -> Vec<String> {
    let name = format!("{}{}", "  ".repeat(depth), plain_text(name));
    let Some(frame) = frame else {
        return vec![name, String::new(), String::new(), String::new()];
    };
    let sent_by = frame.topic.clone().unwrap_or_else(|| "static".to_owned());
    let rate = frame.rate_hz.map(|rate| format!("{rate:.1} Hz"));
    let age = frame.age_nanos.map(|age| format::latency(Some(age)));
    vec![
        name,
        sent_by,
        rate.unwrap_or_default(),
        age.unwrap_or_default(),
    ]
}

fn echo(
    target: &Target,
    [target_frame, source_frame]: [&str; 2],
    count: Option<u64>,
    interval: Duration,
) -> Result<ExitCode, Failure> {
    let mut watched = Watched::open(target.dataflow.as_deref())?;
    lower_priority();
    let mut left = count.unwrap_or(u64::MAX);
    let mut last_error = String::new();
    while left > 0 {
        let runs_on = watched.watch_until(Instant::now() + interval)?;
        let tree = watched.tree();
        match tree.lookup(target_frame, source_frame, LookupTime::Latest) {
            Ok(found) => {
                let text = match target.json {
                    true => format!("{}\n", as_json(&found, [target_frame, source_frame])),
                    false => shown(&found, [target_frame, source_frame], watched.now()),
                };
                output::write_or_end(&text)?;
                last_error.clear();
                left -= 1;
            }
            Err(error) => {
                let error = plain_text(&error.to_string());
                if error != last_error {
                    note!("{error}");
                    last_error = error;
                }
            }
        }
        if !runs_on {
            note!("{} has ended", watched.dataflow());
            break;
        }
    }
    match last_error.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(IMPERFECT)),
    }
}

fn as_json(found: &Transform, [target, source]: [&str; 2]) -> serde_json::Value {
    json!({
        "target": target,
        "source": source,
        "stamp_utc_nanos": found.stamp,
        "translation": found.translation,
        "rotation": found.rotation,
    })
}

fn shown(found: &Transform, [target, source]: [&str; 2], now: Option<i64>) -> String {
    let age = found.stamp.zip(now).map(|(stamp, now)| {
        let age = u64::try_from(now.saturating_sub(stamp)).unwrap_or(0);
        format!(", {} old", format::latency(Some(age)))
    });
    let kind = if found.stamp.is_none() {
        ", static"
    } else {
        ""
    };
    format!(
        "{} -> {}{kind}{}\n{}",
        plain_text(target),
        plain_text(source),
        age.unwrap_or_default(),
        pose(found.translation, found.rotation)
    )
}

/// A pose in metres, as a quaternion, and in degrees.
fn pose(translation: [f64; 3], rotation: [f64; 4]) -> String {
    let numbers = |numbers: &[f64]| {
        let numbers: Vec<String> = numbers.iter().map(|it| format!("{it:.3}")).collect();
        format!("[{}]", numbers.join(", "))
    };
    let degrees = roll_pitch_yaw(rotation).map(f64::to_degrees);
    format!(
        "  translation {} m\n  rotation    {} (x, y, z, w), roll, pitch, yaw {} degrees\n",
        numbers(&translation),
        numbers(&rotation),
        numbers(&degrees)
    )
}

/// Rotations about the fixed axes x, y and z, in this order, in radians.
fn roll_pitch_yaw([x, y, z, w]: [f64; 4]) -> [f64; 3] {
    [
        f64::atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y)),
        (2.0 * (w * y - z * x)).clamp(-1.0, 1.0).asin(),
        f64::atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z)),
    ]
}

fn list(target: &Target) -> Result<ExitCode, Failure> {
    let (dataflow, transforms) = static_transforms(target.dataflow.as_deref())?;
    if target.json {
        let answer = json!({ "dataflow": dataflow, "static_transforms": transforms });
        output::write(&format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for transform in &transforms {
        let (parent, child) = (plain_text(&transform.parent), plain_text(&transform.child));
        let pose = pose(transform.translation, transform.rotation);
        text.push_str(&format!("{parent} -> {child}\n{pose}"));
    }
    if transforms.is_empty() {
        text.push_str("the dataflow file has no `static_transforms`\n");
    }
    output::write(&text)?;
    Ok(ExitCode::SUCCESS)
}
