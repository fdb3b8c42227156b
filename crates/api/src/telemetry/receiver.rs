//! The receiver of OTLP: one POST a message, each on a connection of its own.

use std::time::Duration;

use axum::http::Uri;
use bytes::Bytes;
use nervure_http::{Connection, Request, StatusCode, header};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::spans::Sent;
use crate::{Error, Note};

/// Time limit for the answer to a message: the default of OTLP's exporters.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The longest part of an answer that is shown.
const MAX_SHOWN_CHARS: usize = 300;

/// The port unless the address has one.
const DEFAULT_PORT: u16 = 80;

pub struct Receiver {
    host: String,
    port: u16,
    /// The path of the address, without a slash at its end.
    path: String,
    runtime: Runtime,
    /// `metrics` or `traces`.
    signal: &'static str,
    note: Note,
    failing: bool,
    failed: u64,
}

impl Receiver {
    /// A receiver at an `http://` address.
    pub fn new(endpoint: &str, signal: &'static str, note: Note) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::Receiver {
            endpoint: endpoint.to_owned(),
            reason: reason.to_owned(),
        };
        let uri: Uri = endpoint
            .parse()
            .map_err(|error| invalid(&format!("{error}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(invalid("only `http://` is supported")),
            _ => return Err(invalid("it does not begin with `http://`")),
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Sender)?;
        Ok(Self {
            host: uri.host().unwrap_or_default().to_owned(),
            port: uri.port_u16().unwrap_or(DEFAULT_PORT),
            path: uri.path().trim_end_matches('/').to_owned(),
            runtime,
            signal,
            note,
            failing: false,
            failed: 0,
        })
    }

    /// Sends a message, and returns whether it was taken. Says when that fails, and when it succeeds
    /// again.
    pub fn send(&mut self, message: &Value) -> Sent {
        let body = Bytes::from(message.to_string());
        let sent = self.runtime.block_on(async {
            let exchange = self.exchange(body);
            let answer = tokio::time::timeout(EXPORT_TIMEOUT, exchange).await;
            answer.unwrap_or_else(|_| Err((Sent::Failed, "it does not answer".to_owned())))
        });
        let (signal, host, port) = (self.signal, &self.host, self.port);
        match sent {
            Ok(()) => {
                if self.failing {
                    let failed = self.failed;
                    (self.note)(format_args!(
                        "the receiver takes {signal} again; {failed} messages had failed"
                    ));
                    (self.failing, self.failed) = (false, 0);
                }
                Sent::Taken
            }
            Err((sent, reason)) => {
                if !self.failing {
                    (self.note)(format_args!(
                        "the receiver at {host}:{port} takes no {signal}: {reason}"
                    ));
                }
                self.failing = true;
                self.failed += 1;
                sent
            }
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<(), (Sent, String)> {
        // An IPv6 address stands in brackets.
        let host = self.host.trim_matches(['[', ']']);
        let connection = Connection::open((host, self.port)).await;
        let mut connection = connection.map_err(failed)?;
        let request = Request::post(format!("{}/v1/{}", self.path, self.signal))
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("nervure/", env!("CARGO_PKG_VERSION")),
            )
            .body(body)
            .map_err(failed)?;
        let answer = connection.send(request).await.map_err(failed)?;
        let status = answer.status;
        let body = answer.bytes(MAX_ANSWER_BYTES).await.map_err(failed)?;
        judge(status, &body)
    }
}

/// A failure after which the message may be sent again.
fn failed(error: impl std::fmt::Display) -> (Sent, String) {
    (Sent::Failed, error.to_string())
}

/// Whether a message was taken as a whole. OTLP has four statuses after which it may be sent again.
fn judge(status: StatusCode, body: &[u8]) -> Result<(), (Sent, String)> {
    let shown = || -> String {
        let text = String::from_utf8_lossy(body);
        let printable = text.chars().filter(|c| !c.is_control());
        printable.take(MAX_SHOWN_CHARS).collect()
    };
    if !status.is_success() {
        let sent = match status.as_u16() {
            429 | 502 | 503 | 504 => Sent::Failed,
            _ => Sent::Rejected,
        };
        return Err((sent, format!("{status} {}", shown())));
    }
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let is_rejected = |count: &Value| match count {
        Value::String(text) => text != "0",
        other => other.as_u64().unwrap_or(0) > 0,
    };
    let keys = ["rejectedDataPoints", "rejectedSpans"];
    match keys.iter().any(|key| is_rejected(&partial[key])) {
        true => Err((Sent::Rejected, format!("a part is rejected: {}", shown()))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_receiver_rejects_is_no_success() {
        assert!(judge(StatusCode::OK, b"{}").is_ok());
        assert!(judge(StatusCode::OK, b"").is_ok());
        assert!(judge(StatusCode::BAD_REQUEST, b"{}").is_err());
        let rejected = br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        assert!(judge(StatusCode::OK, rejected).is_err());
        let none = br#"{"partialSuccess":{"rejectedSpans":"0"}}"#;
        assert!(judge(StatusCode::OK, none).is_ok());
    }

    #[test]
    fn an_address_is_http() {
        for good in [
            "http://localhost:4318",
            "http://[::1]:4318/otlp/",
            "http://10.0.0.1",
        ] {
            assert!(Receiver::new(good, "metrics", |_| {}).is_ok(), "{good}");
        }
        for bad in ["localhost:4318", "https://localhost:4318", "", "http://"] {
            assert!(Receiver::new(bad, "metrics", |_| {}).is_err(), "{bad}");
        }
    }
}
