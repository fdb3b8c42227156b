//! The keeper of a dataflow: one small, single-threaded process that starts the nodes, gives each
//! exactly the descriptors of its edges, watches, restarts and stops them, and leaves no process
//! behind.
//!
//! `machine` decides, without a clock, a process or a socket; `shell` carries out the decisions, in
//! one epoll loop. `nervure run` starts the keeper as a process of its own, which stops the nodes
//! in order whatever happens to `run`.

pub mod cgroups;
pub mod descendants;
pub mod log_space;
mod machine;
pub mod plan;
mod shell;

pub use shell::{
    KeeperError,
    process::hang_up_with_parent,
    program::{python, words as program_words},
    python_path::python_path,
    send_plan, serve,
};
