//! Samples that do not fit their type.

use crate::error::in_brackets;

/// Why a sample does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{type_name}{}: expected {expected}, found {found}{}", in_field(field), in_brackets(hint.as_deref()))]
pub struct Misfit {
    /// The type, such as `std/Imu@1`.
    pub type_name: Box<str>,
    /// The field, such as `angular_velocity.x`; empty for the whole sample.
    pub field: String,
    /// The content of the type there.
    pub expected: String,
    /// The content of the sample there.
    pub found: String,
    /// The likely fix.
    pub hint: Option<String>,
}

fn in_field(field: &str) -> String {
    match field {
        "" => String::new(),
        field => format!(", field `{field}`"),
    }
}
