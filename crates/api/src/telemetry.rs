//! The figures and the traces, for a receiver of OpenTelemetry. Nodes send their spans to this process.

mod figures;
mod otlp;
mod receiver;
mod spans;

use std::{
    sync::{
        Arc,
        mpsc::{Receiver as Ended, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use nervure_inspect::{Fault, threads};

use self::{receiver::Receiver, spans::Spans};
use crate::{Error, Note, snapshot::Snapshot};

/// Settings of the sender.
#[derive(Debug)]
pub struct Settings {
    /// The address of the receiver, to which `/v1/metrics` and `/v1/traces` are added.
    pub endpoint: String,
    /// Interval of the metrics.
    pub interval: Duration,
    /// Whether metrics are sent.
    pub has_metrics: bool,
    /// Shows the state of the receiver.
    pub note: Note,
}

/// Sends until `ended` has a message or its sender is gone.
///
/// # Errors
/// If the address is invalid, or another process of this user takes the spans of nodes.
pub fn send(settings: &Settings, ended: &Ended<()>) -> Result<(), Error> {
    let Settings {
        endpoint,
        interval,
        note,
        ..
    } = settings;
    let mut receiver = Receiver::new(endpoint, "metrics", *note)?;
    let mut receiver_of_spans = Receiver::new(endpoint, "traces", *note)?;
    let spans = Spans::listen(*note)?;
    note(format_args!("sending to {endpoint} every {interval:?}"));
    let resource = otlp::resource();
    let sending = {
        let (spans, resource) = (Arc::clone(&spans), resource.clone());
        threads::spawn(move || {
            spans.send_all(&resource, |message| receiver_of_spans.send(message));
        })?
    };
    let mut due = Instant::now();
    loop {
        if settings.has_metrics {
            match Snapshot::take() {
                Ok(snapshot) => {
                    let own = spans.metric();
                    let metrics = figures::metrics(&snapshot, own, &resource, otlp::now());
                    receiver.send(&metrics);
                }
                Err(error) => {
                    let error = error.text_with_causes();
                    note(format_args!("the metrics cannot be read: {error}"));
                }
            }
        }
        // Late readings are skipped, but for the next one.
        due = (due + *interval).max(Instant::now());
        match ended.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    spans.end();
    // The panic hook has reported a panic.
    let _ = sending.join();
    Ok(())
}
