//! Dataflow files: YAML text to a resolved, validated graph.
//!
//! [`parse`] reports all mistakes in a file at once, each with its line, the expected value and the
//! likely fix, as data ([`Diagnostic`]) and as text ([`Report::render`]). It does no I/O:
//! [`Surroundings`] answers its questions about the host. [`load`] reads a file of this host.
//!
//! ```
//! use std::path::Path;
//! use nervure_dataflow::{Anywhere, parse};
//!
//! let text = "
//! nodes:
//!   - id: camera
//!     path: camera.py
//!     inputs: {tick: nervure/timer/hz/30}
//!     outputs: [image]
//!   - id: detector
//!     path: detector.py
//!     inputs: {image: {source: camera/imagee, queue_size: 1}}
//! ";
//! let report = parse("drive.yml", text.as_bytes(), Path::new("/robot"), &Anywhere);
//! let finding = &report.diagnostics[0];
//! assert_eq!(finding.code.as_str(), "unknown-output");
//! assert_eq!(finding.suggestion.as_deref(), Some("image"));
//!
//! let fixed = text.replace("imagee", "image");
//! let report = parse("drive.yml", fixed.as_bytes(), Path::new("/robot"), &Anywhere);
//! let dataflow = report.dataflow.unwrap();
//! assert_eq!(dataflow.topic(dataflow.edges[0].from), "drive:camera/image");
//! ```
//!
//! Steps from a file to a graph: `tree` turns YAML into values with spans, within limits; `read`
//! turns values into a parsed dataflow, by the table of `keys`; `resolve` looks up names;
//! `check_graph` finds nodes that would wait for each other.

mod check_graph;
mod check_machines;
mod check_processes;
mod decode;
mod diagnostic;
mod graph;
mod keys;
mod load;
mod mermaid;
mod name;
mod parsed;
mod quote;
mod read;
mod reference;
mod render;
mod replace;
mod report;
mod resolve;
mod resolve_services;
mod resolve_transforms;
mod schema;
mod source;
mod split;
mod surroundings;
mod syntax_error;
mod timer;
mod tree;
mod type_files;
mod type_folders;
mod unit;

pub use diagnostic::{Code, Definitions, Diagnostic, MAX_DIAGNOSTICS, Related, Severity};
pub use graph::{
    Client, DEFAULT_HELD_BEYOND_QUEUE, DEFAULT_QUEUE_SIZE, Dataflow, Edge, GitReference, GitSource,
    Input, InputIndex, InputQueue, Labels, Node, Output, OutputIndex, Qos, QueuePolicy, Resources,
    Service, ServiceClient, Source, TrafficClass,
};
pub use load::{Host, load, load_for};
pub use name::{MAX_NAME_BYTES, NameError, TypeName, check_name};
pub use nervure_protocol::graph::{
    DeadlineSpec, LastValueSpec, NodeSettings, Program, Ready, Restart, RestartPolicy, Scheduling,
};
pub use nervure_protocol::params::{ParamKind, ParamSpec};
pub use read::param_value::{param_value, plain_value};
pub use reference::reference;
pub use replace::UnansweredClient;
pub use report::{Report, parse};
pub use schema::schema;
pub use source::{Location, MAX_FILE_BYTES, SourceText, Span};
pub use split::{Carries, Delivery, Incoming, Outgoing, Part, Stream};
pub use surroundings::{Anywhere, Entry, Surroundings};
pub use type_files::{TypeFileError, TypeFiles, TypeFilesError};
pub use unit::{UnitError, parse_duration, parse_size};
