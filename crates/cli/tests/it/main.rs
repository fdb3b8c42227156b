//! The `nervure` command with real processes.

mod build;
mod dataflow;
mod graph;
mod help;
mod joined;
mod link;
mod lint;
mod look;
mod nodes;
mod observer;
mod on_failure;
mod param;
mod processes;
mod recordings;
mod replace;
mod run;
mod schema;
mod services;
mod validate;
mod watch;
