//! The type that an output declares.

use std::sync::Arc;

use nervure_types::{Definition, standard_type};

/// The type of the samples of a topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredType {
    /// Its name; `None` if the output declares none.
    pub(crate) name: Option<String>,
    /// Its definition, if it is in the standard set.
    pub(crate) definition: Option<Arc<Definition>>,
}

impl DeclaredType {
    pub(crate) fn new(name: Option<&str>) -> Self {
        // Without a version a type is a mere name, but viewers can show what fits it.
        let known = name.and_then(|name| match name.contains('@') {
            true => name.parse().ok(),
            false => format!("{name}@1").parse().ok(),
        });
        Self {
            name: name.map(str::to_owned),
            definition: known.and_then(|name| standard_type(&name)),
        }
    }

    /// Whether its samples are shown as this message of Foxglove.
    pub(crate) fn is_shown_as(&self, message: &str) -> bool {
        let definition = self.definition.as_ref();
        definition.is_some_and(|known| known.facts.foxglove.as_deref() == Some(message))
    }
}
