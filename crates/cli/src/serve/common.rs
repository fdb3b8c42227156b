//! What all routes have in common.

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
use serde::Deserialize;
use tokio::sync::{Mutex, Semaphore};
use utoipa::IntoParams;

use super::{access::Access, recorders::Recordings};
use crate::failure::Failure;

/// Longest pause of a client: in a handshake, between requests, and while an answer or event waits for
/// it. 30 s outlast four retransmissions of TCP, with back-off from 1 s (RFC 6298).
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

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

/// The failure as the commands write it with `--json`.
pub fn error(status: StatusCode, failure: &Failure) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, failure.json().to_string()).into_response()
}

/// The status of a failure.
pub fn status_of(failure: &Failure) -> StatusCode {
    match failure {
        failure if failure.is_missing() => StatusCode::NOT_FOUND,
        failure if failure.is_invalid() => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
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
                let failure =
                    Failure::invalid("the request is malformed").because(rejection.to_string());
                Err(error(StatusCode::BAD_REQUEST, &failure))
            }
        }
    }
}
