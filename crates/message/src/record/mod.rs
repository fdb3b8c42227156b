//! Values made of fields, lists and tensors: what Python calls a dict and Rust a struct.
//!
//! A record travels as an Arrow array: fields are a struct, lists a `LargeList`. A tensor among them is of Arrow's
//! canonical extension type `arrow.variable_shape_tensor`: a struct of its elements (`data`) and its shape (`shape`). So
//! the shape is per sample and the schema per output, and readers without the extension type see both. The order of the
//! axes in memory is the `permutation` of the type's metadata, where it is not C order.
//!
//! [`Column`] collects values, [`Record`] is what can be sent: its buffers are written into the payload directly, each
//! tensor in one copy from where it lies. [`TensorColumn`] reads tensors in place. [`SerdeSample`] and [`ReceivedRecord`]
//! are the same for types of Rust, through serde.

mod column;
mod deserialize;
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
