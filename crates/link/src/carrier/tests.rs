//! What every carrier does, and what QUIC does beyond, on a simulated network.

mod conformance;
mod hostile;
mod quic;
mod world;
