//! The `nervure` command with real processes.

mod build;
mod complete;
mod dataflow;
mod graph;
mod help;
mod hostile_text;
mod inspect;
mod joined;
mod link;
mod lint;
mod nodes;
mod observer;
mod on_failure;
mod overrides;
mod param;
mod processes;
mod recordings;
mod replace;
mod run;
mod schema;
mod services;
mod shortage;
mod top;
mod validate;
mod vandal;
mod watch;
