//! Reads when a node is restarted: `restart_policy` and the keys beside it.

use nervure_protocol::graph::{Restart, RestartPolicy};

use super::map::Keys;
use super::reader::Reader;
use crate::diagnostic::{Code, Finding};
use crate::keys::{MAX_RESTARTS, RESTART_POLICIES};

pub(super) fn read_restart(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Restart {
    let default = Restart::default();
    let policy =
        keys.value("restart_policy")
            .map(|value| match reader.one_of(value, RESTART_POLICIES) {
                Some("on-failure") => RestartPolicy::OnFailure,
                Some("always") => RestartPolicy::Always,
                _ => RestartPolicy::Never,
            });
    let mut duration = |name| keys.value(name).and_then(|value| reader.duration(value));
    let delay = duration("restart_delay");
    let max_delay = duration("max_restart_delay");
    let window = duration("restart_window");
    let max_restarts = keys
        .value("max_restarts")
        .and_then(|value| reader.unsigned(value, &MAX_RESTARTS));
    if policy.is_none() {
        report_useless_keys(reader, keys);
    }
    let delay_or_default = delay.unwrap_or(default.delay);
    if let (Some(max_delay), Some(value)) = (max_delay, keys.value("max_restart_delay"))
        && max_delay < delay_or_default
    {
        let message = format!(
            "the longest delay, {max_delay:?}, is shorter than the first, {delay_or_default:?}"
        );
        let finding = Finding::error(Code::ConflictingKeys, value.span, message);
        reader.report(
            finding.hint("`restart_delay` is the first delay, `max_restart_delay` the longest"),
        );
    }
    Restart {
        policy: policy.unwrap_or(default.policy),
        delay: delay_or_default,
        max_delay: max_delay.unwrap_or(default.max_delay.max(delay_or_default)),
        max_restarts: max_restarts.filter(|&restarts| restarts > 0),
        window: window.filter(|window| !window.is_zero()),
    }
}

/// Warns of keys that only have an effect beside `restart_policy`.
fn report_useless_keys(reader: &mut Reader<'_>, keys: &Keys<'_>) {
    for name in [
        "restart_delay",
        "max_restart_delay",
        "max_restarts",
        "restart_window",
    ] {
        if let Some(entry) = keys.entry(name) {
            let message = format!("`{name}` has no effect: the node is never restarted");
            let finding = Finding::warning(Code::UselessKey, entry.key.span, message)
                .hint("add `restart_policy: on-failure` or `restart_policy: always`");
            reader.report(finding);
        }
    }
}
