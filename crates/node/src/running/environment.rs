//! The dataflow that the environment names.

use nervure_protocol::DATAFLOW_VARIABLE;

/// The given name, or else the value of `NERVURE_DATAFLOW` in the environment.
pub fn named(name: Option<&str>) -> Option<String> {
    name.map(str::to_owned).or_else(named_by_environment)
}

pub(super) fn named_by_environment() -> Option<String> {
    std::env::var(DATAFLOW_VARIABLE)
        .ok()
        .filter(|name| !name.is_empty())
}
