//! The error of this crate.

use std::{error::Error as StdError, fmt, io, net::SocketAddr, path::PathBuf, process::ExitStatus};

use axum::extract::rejection::JsonRejection;
use nervure_inspect::Fault;
use nervure_protocol::domain::{DOMAIN_VARIABLE, DomainError};

/// A server cannot start, or a request is not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A running dataflow.
    #[error("{0}")]
    Inspect(nervure_inspect::Error),
    /// The fleet.
    #[error("{0}")]
    Fleet(nervure_fleet::Error),
    /// The environment names no valid domain.
    #[error("{DOMAIN_VARIABLE}: {0}")]
    Domain(DomainError),

    /// The server would be reachable by other machines without TLS.
    #[error("{0} is reachable from other machines, and there is no `--certificate`")]
    Open(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The server has no runtime.
    #[error("cannot start the server")]
    Server(#[source] io::Error),
    /// The file of the token cannot be read or written.
    #[error("the token in {} cannot be used", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// There are no random numbers for a token.
    #[error("no random numbers")]
    Random(#[source] getrandom::Error),
    /// Other users can read the token.
    #[error("{} can be read by other users: its mode is {mode:o}", path.display())]
    TokenMode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file of the token has none.
    #[error("{} holds no token: expected {least} characters or more", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// The shortest token.
        least: usize,
    },
    /// The certificate or its key cannot be used.
    #[error("the {what} {} cannot be used", path.display())]
    Certificate {
        /// `certificate` or `key`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// No route has this path.
    #[error("there is no such path")]
    NoPath,
    /// The route has another method.
    #[error("this path does not have this method")]
    NoMethod,
    /// The request names another host.
    #[error("the `Host` of the request is not this server")]
    OtherHost,
    /// The request has no token, or a wrong one.
    #[error("the request has not the token of this server")]
    Unauthorized,
    /// The path or the query cannot be parsed.
    #[error("the request is malformed")]
    Malformed(#[source] Box<dyn StdError + Send + Sync>),
    /// The body cannot be parsed.
    #[error("the body is not the JSON that this path takes")]
    Body(#[source] JsonRejection),
    /// The lifetime of an invitation is out of range.
    #[error("`valid_seconds` is not from 1 to 1e9")]
    Lifetime,
    /// The pattern of log records is invalid.
    #[error("the `pattern` is no regular expression")]
    Pattern(#[source] regex_lite::Error),
    /// A path is relative.
    #[error("`{0}` is no absolute path")]
    Relative(String),
    /// A path names no regular file.
    #[error("`{0}` is no regular file")]
    NoFile(String),
    /// Too many requests that change something.
    #[error("too many requests are being carried out")]
    Busy,
    /// Too many recordings.
    #[error("there are {0} recordings already")]
    ManyRecordings(usize),
    /// Too many streams.
    #[error("there are {0} streams already")]
    ManyStreams(usize),
    /// A thread that answers a request has panicked.
    #[error("the request panicked")]
    Panicked,
    /// The thread that reads the metrics has panicked.
    #[error("the reading of the metrics panicked")]
    MetricsPanicked,
    /// The metrics cannot be encoded.
    #[error("cannot write the metrics")]
    Metrics(#[source] fmt::Error),
    /// The command that carries out a request cannot be started.
    #[error("cannot run the command")]
    Command(#[source] io::Error),
    /// The command that carries out a request has written no JSON.
    #[error("the command has ended without an answer{}", .0.map(|status| format!(": {status}")).unwrap_or_default())]
    NoAnswer(Option<ExitStatus>),
    /// The command that carries out a request has failed.
    #[error("{message}")]
    Refused {
        /// Its error.
        message: String,
        /// The nearest first.
        causes: Vec<String>,
        /// The likely fix.
        hint: Option<String>,
        /// Whether the request is wrong.
        is_invalid: bool,
    },
    /// The server has not started this recording.
    #[error("this server has no recording {0}")]
    NoRecording(u32),
    /// The recording is forgotten.
    #[error("the recording has ended, and is not listed any more")]
    RecordingGone,

    /// Another process takes the spans of this user.
    #[error("another `nervure telemetry` of this user runs")]
    SecondTelemetry,
    /// The socket for spans cannot be made.
    #[error("cannot listen for spans")]
    Spans(#[source] io::Error),
    /// The address of a receiver is invalid.
    #[error("`{endpoint}` is no address of a receiver: {reason}")]
    Receiver {
        /// The address.
        endpoint: String,
        /// The reason.
        reason: String,
    },
    /// The sender has no runtime.
    #[error("cannot start the sender")]
    Sender(#[source] io::Error),
}

impl From<nervure_inspect::Error> for Error {
    fn from(error: nervure_inspect::Error) -> Self {
        Self::Inspect(error)
    }
}

impl From<nervure_fleet::Error> for Error {
    fn from(error: nervure_fleet::Error) -> Self {
        Self::Fleet(error)
    }
}

impl From<DomainError> for Error {
    fn from(error: DomainError) -> Self {
        Self::Domain(error)
    }
}

impl Fault for Error {
    fn is_invalid(&self) -> bool {
        match self {
            Self::Inspect(error) => error.is_invalid(),
            Self::Fleet(error) => error.is_invalid(),
            Self::Refused { is_invalid, .. } => *is_invalid,
            Self::Listen { .. }
            | Self::Server(_)
            | Self::Token { .. }
            | Self::Random(_)
            | Self::Busy
            | Self::ManyRecordings(_)
            | Self::ManyStreams(_)
            | Self::Panicked
            | Self::MetricsPanicked
            | Self::Metrics(_)
            | Self::Command(_)
            | Self::NoAnswer(_)
            | Self::Spans(_)
            | Self::Sender(_) => false,
            _ => true,
        }
    }

    fn is_missing(&self) -> bool {
        match self {
            Self::Inspect(error) => error.is_missing(),
            Self::Fleet(error) => error.is_missing(),
            Self::NoRecording(_) | Self::RecordingGone => true,
            _ => false,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Inspect(error) => error.causes(),
            Self::Fleet(error) => error.causes(),
            Self::Refused { causes, .. } => causes.clone(),
            _ => self.source().iter().map(ToString::to_string).collect(),
        }
    }

    fn hint(&self) -> Option<String> {
        const OPEN: &str = "name a certificate and its key, or listen on 127.0.0.1 and forward a port: \
                            `ssh -L 7710:127.0.0.1:7710 HOST`";
        const OTHER_HOST: &str =
            "use an IP address or `localhost`, or start the server with `--host NAME`";
        const UNAUTHORIZED: &str =
            "send `Authorization: Bearer TOKEN`; the server has said where the token is";
        const RECEIVER: &str = "name one such as `http://localhost:4318`; an OpenTelemetry Collector there can \
                                forward the data with encryption and keys";
        let text = match self {
            Self::Inspect(error) => return error.hint(),
            Self::Fleet(error) => return error.hint(),
            Self::Refused { hint, .. } => return hint.clone(),
            Self::TokenMode { path, .. } => return Some(format!("chmod 600 {}", path.display())),
            Self::Open(_) => OPEN,
            Self::Listen { .. } => "`--listen IP:PORT` chooses another address",
            Self::NoToken { .. } => "remove it, and a new one is made",
            Self::OtherHost => OTHER_HOST,
            Self::Unauthorized => UNAUTHORIZED,
            Self::SecondTelemetry => "one is enough for all dataflows of this machine",
            Self::Receiver { .. } => RECEIVER,
            _ => return None,
        };
        Some(text.to_owned())
    }
}
