//! Values made of fields, lists and tensors: a dict in Python, a struct in Rust.
//!
//! A record is sent as an Arrow array: fields are a struct, lists a `LargeList`. A tensor in it has
//! Arrow's canonical extension type `arrow.variable_shape_tensor`: a struct of its elements
//! (`data`) and its shape (`shape`). So the shape belongs to the sample and the schema to the
//! output, and readers without the extension type see both. The memory order of the axes is the
//! `permutation` in the metadata of the type, unless it is C order.
//!
//! [`Column`] collects values. [`Record`] can be sent: its buffers are written directly into the
//! payload, and each tensor is copied once. [`TensorColumn`] reads tensors in place.
//! [`SerdeSample`] and [`ReceivedRecord`] do the same for Rust types, through serde.

mod column;
mod deserialize;
mod elements;
mod plan;
mod serialize;
mod tensors;

#[cfg(test)]
mod serde_tests;
#[cfg(test)]
mod tests;

pub use column::{Column, ColumnError, FieldColumns, Kind};
pub use deserialize::{DeserializeError, ReceivedRecord};
pub use plan::{Elements, Record, RecordError};
pub use serialize::{SerdeError, SerdeSample};
pub use tensors::{TensorColumn, TensorColumnError, TensorInRecord};
