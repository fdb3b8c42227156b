//! Reads where and how the kernel schedules a node: `cpu_affinity` and `scheduling`.

use std::time::Duration;

use nervure_protocol::graph::Scheduling;

use super::map::{Keys, read_keys};
use super::reader::{Reader, wrong_type};
use crate::diagnostic::{Code, Finding};
use crate::keys::{NICE, PRIORITY, PROCESSOR, SCHEDULING, SCHEDULING_POLICIES, Shape};
use crate::tree::{Kind, Value};

/// The shortest `runtime` that the kernel accepts.
const MIN_RUNTIME: Duration = Duration::from_nanos(1024);

/// Processors, in ascending order, each once.
pub(super) fn read_processors(reader: &mut Reader<'_>, value: &Value) -> Vec<u32> {
    let Kind::List(items) = &value.kind else {
        let finding = wrong_type(value, Shape::Processors.describe());
        reader.report(match &value.kind {
            Kind::Integer(_, text) => finding.hint(format!("write `[{text}]`")),
            _ => finding,
        });
        return Vec::new();
    };
    if items.is_empty() {
        let message = "the node may run on no processor";
        let finding = Finding::error(Code::InvalidValue, value.span, message)
            .expected(Shape::Processors.describe())
            .hint("leave `cpu_affinity` out to let the node run on all");
        reader.report(finding);
    }
    let mut processors: Vec<u32> = items
        .iter()
        .filter_map(|item| reader.unsigned(item, &PROCESSOR))
        .collect();
    processors.sort_unstable();
    processors.dedup();
    processors
}

pub(super) fn read_scheduling(reader: &mut Reader<'_>, value: &Value) -> Scheduling {
    let hint = "write `{policy: fifo, priority: 80}`, for example";
    read_keys(reader, value, &SCHEDULING, Some(hint))
        .and_then(|keys| read_policy(reader, &keys))
        .unwrap_or_default()
}

fn read_policy(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Option<Scheduling> {
    let policy = keys
        .value("policy")
        .and_then(|value| reader.one_of(value, SCHEDULING_POLICIES));
    let priority = keys
        .value("priority")
        .and_then(|value| reader.integer(value, &PRIORITY));
    let nice = keys
        .value("nice")
        .and_then(|value| reader.integer(value, &NICE));
    let [runtime, deadline, period] = ["runtime", "deadline", "period"].map(|key| {
        let value = keys.value(key)?;
        reader.interval(value)
    });
    let policy = policy?;
    let belongs: &[&str] = match policy {
        "other" => &["nice"],
        "deadline" => &["runtime", "deadline", "period"],
        _ => &["priority"],
    };
    for key in ["nice", "priority", "runtime", "deadline", "period"] {
        if let (false, Some(entry)) = (belongs.contains(&key), keys.entry(key)) {
            let message = format!("`{key}` has no meaning with `policy: {policy}`");
            let finding = Finding::error(Code::ConflictingKeys, entry.key.span, message);
            reader.report(finding.hint(format!("use `{}`, or another policy", belongs[0])));
        }
    }
    if policy == "deadline" {
        return read_deadline(reader, keys, [runtime, deadline, period]);
    }
    if policy == "other" {
        return Some(Scheduling::Other {
            nice: nice.and_then(|nice| i8::try_from(nice).ok()).unwrap_or(0),
        });
    }
    if keys.value("priority").is_none() {
        let message = format!("`policy: {policy}` needs a `priority`");
        let finding = Finding::error(Code::MissingKey, keys.span, message)
            .hint("add `priority:` with a number from 1 to 99, 99 being the most urgent");
        reader.report(finding);
    }
    let priority = u8::try_from(priority?).ok()?;
    Some(match policy {
        "fifo" => Scheduling::Fifo { priority },
        _ => Scheduling::RoundRobin { priority },
    })
}

fn read_deadline(
    reader: &mut Reader<'_>,
    keys: &Keys<'_>,
    [runtime, deadline, period]: [Option<Duration>; 3],
) -> Option<Scheduling> {
    for key in ["runtime", "deadline"] {
        if keys.value(key).is_none() {
            let message = format!("`policy: deadline` needs a `{key}`");
            let finding = Finding::error(Code::MissingKey, keys.span, message)
                .hint("write `{policy: deadline, runtime: 500us, deadline: 2ms}`, for example");
            reader.report(finding);
        }
    }
    let (runtime, deadline) = (runtime?, deadline?);
    let period = period.unwrap_or(deadline);
    if runtime < MIN_RUNTIME || runtime > deadline || deadline > period {
        let message = "the kernel accepts no such times";
        let finding = Finding::error(Code::OutOfRange, keys.span, message)
            .expected("1.024us <= `runtime` <= `deadline` <= `period`");
        reader.report(finding);
        return None;
    }
    Some(Scheduling::Deadline {
        runtime,
        deadline,
        period,
    })
}
