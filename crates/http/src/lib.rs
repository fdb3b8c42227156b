//! HTTP/1.1 over one connection, for both ends.
//!
//! The caller opens the stream: over TCP, or over TLS between ends that know each other's keys. It decides
//! when a connection is used again, and which one is attempted next. So a pool of connections behind one
//! address, as in general clients, has no place here.

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
pub mod places;
#[cfg(feature = "server")]
mod server;

#[cfg(feature = "client")]
pub use client::{Answer, Connection, Error};
pub use hyper::{Method, Request, StatusCode, header};
#[cfg(feature = "server")]
pub use server::{accept, answer_requests};
