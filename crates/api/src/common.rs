//! Parts that all routes share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    extract::{
        FromRequestParts, Path, Query,
        rejection::{PathRejection, QueryRejection},
    },
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use nervure_inspect::{Fault, answers::ErrorAnswer};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};
use utoipa::IntoParams;

use crate::{Error, access::Access, recorders::Recordings};

/// Longest pause of a client: in a handshake, between requests, and while an answer or event waits for
/// it. 30 s outlast four retransmissions of TCP, with back-off from 1 s (RFC 6298).
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Shared {
    pub access: Access,
    /// The last metrics, and when they were read.
    pub metrics: Mutex<Option<(Instant, Bytes)>>,
    /// Requests that change something, at a time.
    pub orders: Arc<Semaphore>,
    /// Streams at a time.
    pub streams: Arc<Semaphore>,
    pub recordings: Recordings,
}

/// The error as the commands write it with `--json`.
pub fn refused(status: StatusCode, error: &Error) -> Response {
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    let answer = json!(ErrorAnswer::of(error)).to_string();
    (status, content_type, answer).into_response()
}

/// As [`refused`], with the status of the error.
pub fn failed(error: &Error) -> Response {
    let status = match error {
        error if error.is_missing() => StatusCode::NOT_FOUND,
        error if error.is_invalid() => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, error)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfDataflow {
    /// Its name, or the process id of its keeper.
    pub dataflow: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OfTopics {
    /// Only these topics, `node/output`, separated by commas; `*` matches anything. Default: all.
    topics: Option<String>,
}

impl OfTopics {
    pub fn patterns(&self) -> Vec<String> {
        let topics = self.topics.iter().flat_map(|topics| topics.split(','));
        topics.map(str::to_owned).collect()
    }
}

/// Parts of a request. A parse error has the form of all errors.
pub struct Checked<T>(pub T::Inner)
where
    T: Extracted;

pub trait Extracted: Sized {
    type Inner;
    type Rejection: ToString;

    fn inner(self) -> Self::Inner;
}

impl<T> Extracted for Path<T> {
    type Inner = T;
    type Rejection = PathRejection;

    fn inner(self) -> T {
        self.0
    }
}

impl<T> Extracted for Query<T> {
    type Inner = T;
    type Rejection = QueryRejection;

    fn inner(self) -> T {
        self.0
    }
}

impl<S, T> FromRequestParts<S> for Checked<T>
where
    S: Send + Sync,
    T: Extracted + FromRequestParts<S, Rejection = <T as Extracted>::Rejection>,
{
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, Response> {
        match T::from_request_parts(parts, state).await {
            Ok(extracted) => Ok(Self(extracted.inner())),
            Err(rejection) => {
                let error = Error::Malformed(rejection.to_string().into());
                Err(failed(&error))
            }
        }
    }
}
