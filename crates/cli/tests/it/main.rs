//! The `nervure` command with real processes.

mod build;
mod dataflow;
mod graph;
mod help;
mod nodes;
mod processes;
mod run;
mod schema;
mod validate;
mod watch;
