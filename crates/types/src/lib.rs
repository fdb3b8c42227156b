//! Definitions of message types. No I/O.
//!
//! `.msg` files of ROS are the source: [`Sections`] holds their lines, and [`Library`] resolves a name
//! to a [`Definition`]. [`standard_type`] has the types that Nervure defines, [`humble`] the messages of
//! ROS 2 Humble. [`SampleCheck`] compares samples with a type, [`compare`] two definitions, and
//! [`cdr`] reads the encoding of ROS messages. The feature `generate` adds code for programs.

mod arrow;
pub mod cdr;
mod check;
mod compare;
mod complete;
mod definition;
mod error;
#[cfg(test)]
mod example;
#[cfg(feature = "generate")]
pub mod generate;
mod humble;
mod idl;
mod library;
mod line;
mod misfit;
mod portable;
#[cfg(feature = "rihs")]
mod rihs;
mod sections;
mod shown;
mod sidecar;
mod standard;
mod tensor_rule;

pub use check::SampleCheck;
pub use compare::{Change, ComparedField, Difference, Part, compare, side_by_side};
pub use definition::{Constant, Definition, Facts, Field, Kind, Literal, Number, plain_name};
pub use error::{DefinitionError, Place, SyntaxError};
pub use humble::{humble, unchanged};
pub use library::Library;
pub use misfit::Misfit;
pub use portable::PortableError;
#[cfg(feature = "rihs")]
pub use rihs::rihs01;
pub use sections::{Format, Sections, interface_of};
pub use shown::{Source, SourceError};
pub use standard::{STANDARD_NAMESPACE, standard, standard_names, standard_type};
pub use tensor_rule::{Axis, Elements, TensorRule};
