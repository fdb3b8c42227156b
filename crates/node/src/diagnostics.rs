//! Diagnostics: the `tracing` events of Nervure's libraries, as `NERVURE_LOG` selects them.
//!
//! The variable is a list such as `warn,link=debug`: `TARGET=LEVEL`, or a level for every target. A
//! target is the name of a crate without `nervure_`.
//!
//! In a program with a `tracing` subscriber, the events of this crate go there. In any other
//! program they go to stderr, through a subscriber that is never made the global default: the
//! program may still install its own.

use std::ffi::OsStr;
use std::io;
use std::sync::OnceLock;

use tracing::dispatcher::{self, Dispatch, SetGlobalDefaultError};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;

/// The environment variable that selects events.
pub const VARIABLE: &str = "NERVURE_LOG";

/// The crates with events, without the prefix `nervure_`.
const TARGETS: [&str; 4] = ["daemon", "keeper", "link", "node"];

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// An invalid value of `NERVURE_LOG`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no such target.
    #[error("{VARIABLE}: `{part}` has an unknown target, expected one of {}", TARGETS.join(", "))]
    Target {
        /// The part of the list.
        part: String,
    },
    /// There is no such level.
    #[error(
        "{VARIABLE}: `{part}` has an unknown level, expected one of {}",
        level_names()
    )]
    Level {
        /// The part of the list.
        part: String,
    },
}

/// Makes a subscriber for `NERVURE_LOG` the global default, for programs of Nervure. Without the
/// variable there is none.
///
/// # Errors
/// [`FilterError`] if the value of the variable is wrong.
pub fn install() -> Result<(), FilterError> {
    if std::env::var_os(VARIABLE).is_some() {
        install_always()?;
    }
    Ok(())
}

/// As [`install`], also without the variable: for daemons, whose events are for users.
///
/// # Errors
/// [`FilterError`] if the value of the variable is wrong.
pub fn install_always() -> Result<(), FilterError> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let subscriber = to_stderr(filter(&value)?);
    // If the program has a subscriber already, that one is meant.
    let _: Result<(), SetGlobalDefaultError> = dispatcher::set_global_default(subscriber);
    Ok(())
}

/// Runs `event`, which emits an event of this crate. Never for the path of a sample.
pub(crate) fn route(event: impl FnOnce()) {
    let program_has_none = dispatcher::get_default(|current| current.is::<NoSubscriber>());
    if program_has_none {
        dispatcher::with_default(fallback(), event);
    } else {
        event();
    }
}

/// Emits an event of this crate, with the arguments of `tracing`'s macro of that level.
macro_rules! emit {
    ($level:ident, $($event:tt)+) => {
        $crate::diagnostics::route(|| tracing::$level!($($event)+))
    };
}
pub(crate) use emit;

/// The subscriber for programs without one. A node runs in spite of a wrong value of the variable.
fn fallback() -> &'static Dispatch {
    static FALLBACK: OnceLock<Dispatch> = OnceLock::new();
    FALLBACK.get_or_init(|| {
        let value = std::env::var_os(VARIABLE).unwrap_or_default();
        let (filter, error) = match filter(&value) {
            Ok(filter) => (filter, None),
            Err(error) => (default_filter(), Some(error)),
        };
        let dispatch = to_stderr(filter);
        if let Some(error) = error {
            dispatcher::with_default(&dispatch, || tracing::warn!("{error}"));
        }
        dispatch
    })
}

fn to_stderr(filter: Targets) -> Dispatch {
    // Without a message to stderr about an error of stderr, which would panic.
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry();
    Dispatch::new(registry.with(lines).with(filter))
}

/// Warnings of nodes, and what daemons do. The commands of the link print what happens to it
/// themselves.
fn default_filter() -> Targets {
    Targets::new()
        .with_target(full_name("node"), LevelFilter::WARN)
        .with_target(full_name("daemon"), LevelFilter::INFO)
}

fn filter(value: &OsStr) -> Result<Targets, FilterError> {
    let value = value.to_string_lossy();
    let parts = value.split(',').map(str::trim);
    let mut filter = default_filter();
    // Levels for every target come first, so that their place in the list does not matter.
    let (ofs, alls): (Vec<_>, Vec<_>) = parts
        .filter(|part| !part.is_empty())
        .partition(|part| part.contains('='));
    for part in alls {
        let level = level_of(part, part)?;
        let named = TARGETS.map(|target| (full_name(target), level));
        filter = filter.with_targets(named);
    }
    for part in ofs {
        let (target, level) = part.split_once('=').unwrap_or_default();
        if !TARGETS.contains(&target) {
            let part = part.to_owned();
            return Err(FilterError::Target { part });
        }
        filter = filter.with_target(full_name(target), level_of(level, part)?);
    }
    Ok(filter)
}

fn full_name(target: &str) -> String {
    format!("nervure_{target}")
}

fn level_of(name: &str, part: &str) -> Result<LevelFilter, FilterError> {
    let mut levels = LEVELS.iter();
    let level = levels.find(|(known, _)| known.eq_ignore_ascii_case(name));
    level
        .map(|(_, level)| *level)
        .ok_or_else(|| FilterError::Level {
            part: part.to_owned(),
        })
}

fn level_names() -> String {
    LEVELS.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_apply_to_the_targets_that_they_name() {
        let filter = filter(OsStr::new("link=debug, INFO,")).unwrap();
        assert!(filter.would_enable("nervure_link::shell", &Level::DEBUG));
        assert!(filter.would_enable("nervure_keeper::shell", &Level::INFO));
        assert!(!filter.would_enable("nervure_keeper::shell", &Level::DEBUG));
        assert!(!filter.would_enable("other", &Level::ERROR));
    }

    #[test]
    fn without_a_level_of_their_own_nodes_warn() {
        let filter = filter(OsStr::new("link=debug")).unwrap();
        assert!(filter.would_enable("nervure_node::control", &Level::WARN));
        assert!(!filter.would_enable("nervure_node::control", &Level::INFO));
        assert!(!filter.would_enable("nervure_keeper", &Level::WARN));
    }

    #[test]
    fn an_error_names_the_part_and_what_is_known() {
        let error = |value| filter(OsStr::new(value)).unwrap_err().to_string();
        assert_eq!(
            error("warn,nodes=debug"),
            "NERVURE_LOG: `nodes=debug` has an unknown target, expected one of daemon, keeper, link, node"
        );
        for wrong in ["node", "node=loud", "loud"] {
            assert_eq!(
                error(wrong),
                format!(
                    "NERVURE_LOG: `{wrong}` has an unknown level, expected one of off, error, warn, info, debug, trace"
                )
            );
        }
    }

    #[test]
    fn a_program_that_installs_its_subscriber_later_gets_the_events() {
        emit!(debug, "before");
        let events = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let written = events.clone();
        let own = fmt::layer().with_writer(move || Writer(written.clone()));
        let own = Dispatch::new(tracing_subscriber::registry().with(own));
        dispatcher::with_default(&own, || emit!(debug, edge = 7, "after"));
        let text = String::from_utf8(events.lock().unwrap().clone()).unwrap();
        assert!(
            text.contains("nervure_node::diagnostics") && text.contains("after edge=7"),
            "{text}"
        );
        assert!(!text.contains("before"), "{text}");
    }

    struct Writer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
