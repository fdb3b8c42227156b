//! What to measure, as the driver wrote it into `NERVURE_LAB_CASE`.

use serde::Deserialize;

/// One measurement, seen from one endpoint.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    /// Producer or consumer.
    pub role: Role,
    /// Which consumer this is, from 0; 0 for the producer.
    pub index: usize,
    /// Where the driver listens.
    pub rendezvous: std::path::PathBuf,
    /// Separates this run's services and files from those of any other.
    pub run_name: String,
    /// Paced, or as fast as it goes.
    pub mode: Mode,
    /// Size of a message, header included; a multiple of 64.
    pub payload_bytes: usize,
    /// How many consumers receive each message.
    pub consumers: usize,
    /// Messages a second, when paced.
    pub rate_hz: f64,
    /// Messages to send before those that are measured, when paced.
    pub warmup_messages: u64,
    /// Messages to measure, when paced.
    pub messages: u64,
    /// How long to send, when flooding.
    pub flood_seconds: f64,
    /// How long after the first message throughput starts to count, when flooding.
    pub flood_warmup_seconds: f64,
    /// How long nothing is sent, when idle.
    pub idle_seconds: f64,
    /// Messages that an edge may queue.
    pub queue_depth: usize,
    /// Whether consumers read the payload, or only its header.
    pub touch: bool,
}

/// What an endpoint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends.
    Producer,
    /// Receives.
    Consumer,
}

/// How messages are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// At a fixed rate, with consumers asleep in between; queues drop the oldest.
    Paced,
    /// As fast as the consumers allow; nothing may be lost, where the peer knows how.
    Flood,
    /// Nothing is sent: what a process costs that waits.
    Idle,
    /// Many nodes that all send one message: how fast a large graph starts.
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
