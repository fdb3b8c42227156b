//! The path of a sample over a link.

/// The path of a sample from another machine.
#[derive(Clone, Debug)]
pub struct Crossed {
    /// The machine.
    pub from: String,
    /// From its publication there until now, if the clocks have been compared.
    pub latency_nanos: Option<u64>,
    /// Error of `latency_nanos`.
    pub error_nanos: u64,
}
