//! The answers of the command `nervure` over HTTP ([`serve()`]), and its figures and traces for a receiver of
//! OpenTelemetry.
//!
//! Each is the loop of a process of its own, which connects to keepers and the daemon as `nervure status` does. Nothing
//! depends on it. The command itself carries out a change, in a process of its own: this program, as `/proc/self/exe`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
mod child;
mod common;
mod connection;
mod error;
mod families;
mod membership;
mod metrics;
mod orders;
mod recorders;
mod recordings;
mod server;
mod snapshot;
mod streams;
#[cfg(feature = "opentelemetry")]
pub mod telemetry;
mod tls;
mod v1;

use std::fmt;

pub use child::end_with_server;
pub use error::Error;
pub use server::{Settings, serve};

/// Shows a line about a running server to its user.
pub type Note = fn(fmt::Arguments<'_>);
