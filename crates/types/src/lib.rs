//! Definitions of message types. No I/O.
//!
//! `.msg` files of ROS are the source: [`Sections`] holds their lines, and [`Library`] resolves a name
//! to a [`Definition`]. [`humble`] has the messages of ROS 2 Humble. [`cdr`] reads the encoding of ROS
//! messages.

pub mod cdr;
mod definition;
mod humble;
mod idl;
mod library;
mod sections;

pub use definition::{Definition, DefinitionError, Field, Kind, Number, plain_name};
pub use humble::{humble, unchanged};
pub use library::Library;
pub use sections::{Format, Sections, interface_of};
