//! The case to measure, which the driver passes in `NERVURE_LAB_CASE`.

use serde::Deserialize;

/// One measurement, seen from one endpoint.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    pub role: Role,
    /// Number of the consumer, from 0; 0 for the producer.
    pub index: usize,
    /// Socket of the driver.
    pub rendezvous: std::path::PathBuf,
    /// Unique; part of the names of services and files, so that runs do not meet.
    pub run_name: String,
    pub mode: Mode,
    /// Size of a message, header included; a multiple of 64.
    pub payload_bytes: usize,
    pub consumers: usize,
    /// Messages a second, when paced.
    pub rate_hz: f64,
    /// Messages to send before those that are measured, when paced.
    pub warmup_messages: u64,
    /// Messages to measure, when paced.
    pub messages: u64,
    /// Sending time, when flooding.
    pub flood_seconds: f64,
    /// Time between the first message and the window in which throughput counts, when flooding.
    pub flood_warmup_seconds: f64,
    pub idle_seconds: f64,
    /// Messages that an edge may queue.
    pub queue_depth: usize,
    /// Whether consumers read the payload, or only its header.
    pub touch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Producer,
    Consumer,
}

/// When messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// At a fixed rate, with consumers asleep in between; queues drop the oldest.
    Paced,
    /// As fast as the consumers allow, without loss where the peer has backpressure.
    Flood,
    /// Never; measures the cost of a process that waits.
    Idle,
    /// One message by each of many nodes; measures the start of a large graph.
    Mesh,
}

impl Case {
    pub(crate) fn from_environment() -> Result<Self, String> {
        let text = std::env::var("NERVURE_LAB_CASE").map_err(
            |_| "NERVURE_LAB_CASE is not set: this program is started by `python -m nervure_lab run`",
        )?;
        let case: Self =
            serde_json::from_str(&text).map_err(|error| format!("NERVURE_LAB_CASE: {error}"))?;
        if case.payload_bytes < 64 || !case.payload_bytes.is_multiple_of(64) {
            return Err(format!(
                "payload_bytes: expected a multiple of 64, got {}",
                case.payload_bytes
            ));
        }
        Ok(case)
    }

    /// Size of a message in words of 8 bytes.
    pub fn payload_words(&self) -> usize {
        self.payload_bytes / 8
    }
}
