use crate::dora_core::config::NodeId;
use crate::{DataflowId, NodeError, NodeResult};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Writes the events of `tracing` to standard output, where Nervure finds the level of a line. `RUST_LOG`
/// sets the levels (`warn`, or `info,camera=debug`); without it the level is `info`. The returned value is
/// to be kept, as in dora; nothing happens when it is dropped.
///
/// # Errors
/// [`NodeError::Init`] if the program has a global subscriber already.
pub fn init_tracing(_node: &NodeId, _dataflow: &DataflowId) -> NodeResult<TracingGuard> {
    let levels = std::env::var("RUST_LOG").ok();
    let levels = levels.and_then(|text| text.parse::<Targets>().ok());
    let levels = levels.unwrap_or_else(|| Targets::new().with_default(tracing::Level::INFO));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stdout);
    tracing_subscriber::registry()
        .with(lines.with_filter(levels))
        .try_init()
        .map_err(|error| NodeError::Init(error.to_string()))?;
    Ok(TracingGuard(()))
}

/// What [`init_tracing`] returns.
#[derive(Debug)]
pub struct TracingGuard(());
