//! Reads a parsed dataflow out of the YAML tree: value by value, names not looked up yet.
//!
//! [`reader`] reads values of one type, [`map`] the keys of a map; every other file reads one part
//! of a node or of the dataflow and goes through these two.

pub(crate) mod args;
pub(crate) mod dataflow;
mod environment;
mod git;
mod inputs;
pub(crate) mod json;
mod last_values;
mod log_outputs;
mod machines;
mod map;
mod module;
mod node;
mod operators;
mod outputs;
pub(crate) mod param_value;
mod params;
mod program;
pub(crate) mod reader;
mod restart;
mod scheduling;
mod services;
mod sources;
mod sync;
mod transforms;
mod type_folders;
mod types;
pub(crate) mod variables;
