//! Values made of fields, lists and tensors: a dict in Python, a struct in Rust.
//!
//! A record is sent as an Arrow array: fields are a struct, lists a `LargeList`. A tensor in it has
//! Arrow's canonical extension type `arrow.variable_shape_tensor`: a struct of its elements
//! (`data`) and its shape (`shape`). So the shape belongs to the sample and the schema to the
//! output, and readers without the extension type see both. The memory order of the axes is the
//! `permutation` in the metadata of the type, unless it is C order.
//!
//! [`Column`] collects values. [`Record`] can be sent: its buffers are written directly into the
//! payload, and each tensor is copied once. [`TensorColumn`] reads tensors in place, [`RecordView`] whole records.
//! [`SerdeSample`] and [`ReceivedRecord`] do the same for Rust types, through serde.

mod column;
mod columns;
mod deserialize;
mod elements;
mod error;
mod path;
mod plan;
mod planner;
mod serialize;
mod tensors;
mod view;

#[cfg(test)]
mod serde_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod view_tests;

pub use column::{Column, ColumnError, FieldColumns, Kind};
pub use columns::{ColumnKind, RecordColumn, RecordColumns, RecordColumnsError};
pub use deserialize::{DeserializeError, ReceivedRecord};
pub use error::RecordError;
pub use path::{FoundValue, PathError, PathMiss, PathStep, RecordPath, tensor_item};
pub use plan::{Elements, Record};
pub use planner::ArrayPlanner;
pub(crate) use serialize::record_of;
pub use serialize::{SerdeError, SerdeSample};
pub use tensors::{TensorColumn, TensorColumnError, TensorInRecord, number_dtype};
pub use view::{Items, RecordPlaces, RecordValue, RecordView, RecordViewError, number};
