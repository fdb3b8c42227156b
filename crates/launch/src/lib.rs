//! Start a dataflow from its file.
//!
//! The command `nervure run` is this library and a terminal. A program starts a dataflow in four steps:
//! it reads the file, applies overrides, prepares the start, and starts a keeper, which is a process of
//! the command `nervure`.
//!
//! ```no_run
//! use std::{path::Path, time::Duration};
//!
//! use nervure_launch::{Assignment, Error, Launch, Options, Overrides, find_command};
//!
//! fn brightness_is_measured(file: &Path) -> Result<(), Error> {
//!     let overrides = Overrides {
//!         params: vec![Assignment::param("camera.fps=60").expect("it is one")],
//!         ..Overrides::default()
//!     };
//!     let report = overrides.load_to_start(file);
//!     eprint!("{}", report.render(false));
//!     let dataflow = overrides.apply(report)?;
//!     let launch = Launch::prepare(&dataflow, Options::default(), &mut |warning| eprintln!("{warning}"))?;
//!     let mut running = launch.run(&find_command()?)?;
//!     assert!(running.wait_ready(Duration::from_secs(10))?);
//!     running.stop("the measurement is over");
//!     let outcome = running.wait(Duration::from_secs(10))?.expect("it ends in time");
//!     assert!(!outcome.has_failures(), "{outcome:?}");
//!     Ok(())
//! }
//! ```
//!
//! Nothing here writes to stdout or stderr, except a keeper that fails, to the stderr that it inherits.
//! Warnings are in the report of a file, or go to a callback.

pub mod environments;
mod error;
pub mod hosts;
pub mod keeper;
mod launch;
pub mod limits;
pub mod log_folder;
pub mod memory;
mod overrides;
mod plan;
mod running;

pub use error::{Error, ErrorKind};
pub use launch::{Launch, Options, find_command, find_on_path};
pub use overrides::{Assignment, AssignmentError, Overrides, graph};
pub use plan::make_token;
pub use running::{Outcome, Running};
