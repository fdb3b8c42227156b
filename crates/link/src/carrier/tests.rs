//! Tests of every carrier, and of QUIC in particular, on a simulated network.

mod conformance;
mod hostile;
mod quic;
mod world;
