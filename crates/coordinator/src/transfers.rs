//! Bundles over HTTP, in pieces.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use tokio::task::spawn_blocking;

use crate::access::Method;
use crate::api::Refusal;
use crate::service::{Paired, Service, check};
use crate::{BUNDLES, MAX_BUNDLE_BYTES, PEER_TIMEOUT};

/// Why a request has no bundle: a status, and a text.
pub(crate) struct Failed(StatusCode, String);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Copied { .. } => StatusCode::CONFLICT,
            Refusal::Store(nervure_store::StoreError::Unavailable(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Refusal::Store(_) | Refusal::NotPaired(_) => StatusCode::FORBIDDEN,
        };
        Self(status, refusal.to_string())
    }
}

impl From<StatusCode> for Failed {
    fn from(status: StatusCode) -> Self {
        Self(status, String::new())
    }
}

type Caller = Result<Paired, Refusal>;

/// Whether a bundle is there.
pub(crate) async fn has(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<(), Failed> {
    admit(caller, Method::Get, &name)?;
    let has = on_disk(move || Ok(service.bundles.has(&name))).await?;
    has.then_some(()).ok_or(StatusCode::NOT_FOUND.into())
}

/// The content of a bundle.
pub(crate) async fn download(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Body, Failed> {
    admit(caller, Method::Get, &name)?;
    let opened = on_disk(move || service.bundles.download(&name)).await;
    Ok(Body::new(opened.map_err(|_| StatusCode::NOT_FOUND)?))
}

/// Writes a bundle as it comes.
pub(crate) async fn upload(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Result<(), Failed> {
    admit(caller, Method::Set, &name)?;
    let begin = move || {
        service.remove_unused_bundles();
        service.bundles.upload(&name)
    };
    let mut upload = on_disk(begin).await?;
    let mut body = Limited::new(request.into_body(), MAX_BUNDLE_BYTES);
    loop {
        let frame = tokio::time::timeout(PEER_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        let write = move || upload.write(&piece).map(|()| upload);
        upload = on_disk(write).await?;
    }
    match on_disk(move || upload.finish()).await? {
        true => Ok(()),
        false => Err(StatusCode::UNPROCESSABLE_ENTITY.into()),
    }
}

/// Whether a caller may use a method on the bundle with this name.
fn admit(caller: Caller, method: Method, name: &str) -> Result<(), Failed> {
    let Paired(caller) = caller?;
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if name.len() != 64 || !name.bytes().all(is_digit) {
        return Err(StatusCode::NOT_FOUND.into());
    }
    Ok(check(&caller, method, &format!("{BUNDLES}{name}"))?)
}

/// Runs work that may block.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failed> {
    match spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Failed(StatusCode::INSUFFICIENT_STORAGE, error.to_string())),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR.into()),
    }
}
