//! Causes of losses on the way to another machine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Cause of a loss between machines. In JSON it is its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum LossCause {
    /// The sample could not be encoded, sent or published.
    Failed,
    /// The sample exceeded the lifespan of its input.
    Lifespan,
    /// Packets were lost, and the input is best effort.
    NotRepaired,
    /// The sample waited for the link when the dataflow ended.
    NotSent,
    /// Newer samples came before the link had room.
    Overwritten,
    /// The queue before the link was full.
    Queue,
    /// The other machine had no memory.
    Refused,
    /// A newer sample could be delivered first.
    Superseded,
    /// The sample was in flight when the connection ended.
    Unconfirmed,
    /// A cause of a later version, by its name.
    Other(String),
}

impl LossCause {
    /// Every cause that this version has.
    pub const ALL: [Self; 9] = [
        Self::Failed,
        Self::Lifespan,
        Self::NotRepaired,
        Self::NotSent,
        Self::Overwritten,
        Self::Queue,
        Self::Refused,
        Self::Superseded,
        Self::Unconfirmed,
    ];

    /// Its name in JSON and metrics.
    pub fn name(&self) -> &str {
        match self {
            Self::Failed => "failed",
            Self::Lifespan => "lifespan",
            Self::NotRepaired => "not repaired",
            Self::NotSent => "not sent",
            Self::Overwritten => "overwritten",
            Self::Queue => "queue",
            Self::Refused => "refused",
            Self::Superseded => "superseded",
            Self::Unconfirmed => "unconfirmed",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<String> for LossCause {
    fn from(name: String) -> Self {
        let known = Self::ALL.into_iter().find(|cause| cause.name() == name);
        known.unwrap_or(Self::Other(name))
    }
}

impl From<LossCause> for String {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Other(name) => name,
            cause => cause.name().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn counts_by_cause_survive_json_also_those_of_a_later_version() {
        let mut counts: BTreeMap<LossCause, u64> = LossCause::ALL.into_iter().zip(1..).collect();
        for name in ["fire", "flood"] {
            counts.insert(LossCause::Other(name.to_owned()), 7);
        }
        let json = serde_json::to_value(&counts).unwrap();
        assert_eq!(
            json,
            json!({
                "failed": 1, "lifespan": 2, "not repaired": 3, "not sent": 4, "overwritten": 5,
                "queue": 6, "refused": 7, "superseded": 8, "unconfirmed": 9, "fire": 7, "flood": 7,
            })
        );
        let read: BTreeMap<LossCause, u64> = serde_json::from_value(json).unwrap();
        assert_eq!(read, counts);
    }
}
