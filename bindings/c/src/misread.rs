//! Why a value of a record cannot be read into memory, or written from it.

use nervure_node::message::record::RecordViewError;

use crate::status::{Failure, Status};

/// A failure at a path within a value. A pointer, so that success costs little.
#[derive(Debug)]
pub(crate) struct Misread(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// Such as `.pose.position` or `[3].x`.
    path: String,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// The value has another type.
    Type { expected: String, found: String },
    /// The sample is damaged.
    Damaged(RecordViewError),
    /// The program has no memory left.
    Memory,
}

impl Misread {
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::of(Cause::Type {
            expected: expected.into(),
            found: found.into(),
        })
    }

    pub(crate) fn memory() -> Self {
        Self::of(Cause::Memory)
    }

    fn of(cause: Cause) -> Self {
        Self(Box::new(Inner {
            path: String::new(),
            cause,
        }))
    }

    pub(crate) fn in_field(self, name: &str) -> Self {
        self.within(name)
    }

    pub(crate) fn in_item(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }

    /// In all items of a list.
    pub(crate) fn in_items(self) -> Self {
        self.within("[]")
    }

    fn within(mut self, step: &str) -> Self {
        let dot = if self.0.path.starts_with(|next| next != '[') {
            "."
        } else {
            ""
        };
        self.0.path = format!("{step}{dot}{}", self.0.path);
        self
    }

    /// The failure of reading or writing a whole value with this name.
    pub(crate) fn failure(self, whole: &str) -> Failure {
        let field = match self.0.path.as_str() {
            "" => String::new(),
            path => format!(", field `{path}`"),
        };
        match self.0.cause {
            Cause::Type { expected, found } => Failure::new(
                Status::Kind,
                format!("{whole}{field}: expected {expected}, found {found}"),
            ),
            Cause::Damaged(error) => Failure::new(Status::Kind, format!("{whole}{field}: {error}")),
            Cause::Memory => Failure::new(
                Status::Memory,
                format!("{whole}{field}: the program has no memory left for it"),
            ),
        }
    }
}

impl From<RecordViewError> for Misread {
    fn from(error: RecordViewError) -> Self {
        Self::of(Cause::Damaged(error))
    }
}
