//! Answers calls.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use nervure_http::places::unless_lost;
use nervure_store::{Change, Changes, StoreError};
use serde::Serialize;

use crate::access::Method;
use crate::api::{
    Approve, BUNDLE, Call, Get, Invite, Join, Lease, List, Refusal, Revoke, Set, Watch,
};
use crate::connections::End;
use crate::pairing::Caller;
use crate::service::{Admitted, Paired, Service, check, in_thread};
use crate::transfers::{download, has, upload};
use crate::{INVITATIONS, Joining, MACHINES, PEER_TIMEOUT};

/// The paths of all calls and of the bundles.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(Join::PATH, post(join))
        .route(Watch::PATH, post(watch))
        .merge(call(
            |_: &Invite| (Method::Manage, INVITATIONS.to_owned()),
            |of, _, it| of.members.invite(it.terms),
        ))
        .merge(call(
            |it: &Approve| (Method::Manage, format!("{MACHINES}{}", it.name)),
            |of, _, it| of.members.approve(&it.name),
        ))
        .merge(call(
            |it: &Revoke| (Method::Manage, format!("{MACHINES}{}", it.name)),
            |of, _, it| of.revoke(&it.name),
        ))
        .merge(call(
            |it: &Get| (Method::Get, it.key.clone()),
            |of, _, it| of.members.store.get(&it.key),
        ))
        .merge(call(
            |it: &Set| (it.method(), it.key.clone()),
            |of, _, it| {
                let store = &of.members.store;
                store.compare_and_set(&it.key, it.expected, it.value.as_deref(), it.lease)
            },
        ))
        .merge(call(
            |it: &List| (Method::List, it.prefix.clone()),
            |of, caller, it| {
                let mut listing = of.members.store.list(&it.prefix)?;
                listing.entries.retain(|it| may_read(caller, &it.key));
                Ok(listing)
            },
        ))
        .merge(call(
            |_: &Lease| (Method::Lease, String::new()),
            |of, _, it| of.members.store.lease(it.lease, it.lifetime()),
        ))
        .route(BUNDLE, get(download).head(has).put(upload))
        .with_state(service)
}

/// The path of a call that needs a permission. It is carried out in a thread of its own.
fn call<C: Call>(
    needs: fn(&C) -> (Method, String),
    perform: fn(&Service, &Caller, C) -> Result<C::Answer, StoreError>,
) -> Router<Arc<Service>> {
    let answer = async move |State(service): State<Arc<Service>>,
                             Paired(caller): Paired,
                             Called(call): Called<C>| {
        let performed = in_thread(move || {
            let (method, key) = needs(&call);
            check(&caller, method, &key)?;
            Ok(perform(&service, &caller, call)?)
        });
        Answered(performed.await)
    };
    Router::new().route(C::PATH, post(answer))
}

/// The call of a request, from its body.
pub(crate) struct Called<C>(C);

impl<C: Call> FromRequest<Arc<Service>> for Called<C> {
    type Rejection = StatusCode;

    async fn from_request(request: Request, _: &Arc<Service>) -> Result<Self, StatusCode> {
        let body = to_bytes(request.into_body(), C::MAX_BYTES);
        let body = match tokio::time::timeout(PEER_TIMEOUT, body).await {
            Ok(body) => body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?,
            Err(_) => return Err(StatusCode::REQUEST_TIMEOUT),
        };
        let call = serde_json::from_slice(&body);
        call.map(Self).map_err(|_| StatusCode::BAD_REQUEST)
    }
}

/// The answer to a call.
pub(crate) struct Answered<A>(Result<A, Refusal>);

impl<A: Serialize> IntoResponse for Answered<A> {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.0).expect("answers can be written as JSON");
        ([(header::CONTENT_TYPE, "application/json")], json).into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Answered::<()>(Err(self)).into_response()
    }
}

/// The secret of the invitation is checked instead of a permission.
pub(crate) async fn join(
    State(service): State<Arc<Service>>,
    Extension(from): Extension<Arc<End>>,
    Admitted(caller): Admitted,
    Called(call): Called<Join>,
) -> Answered<Joining> {
    let Join { secret, name } = call;
    let join = move || service.members.join(&caller, from.address, &secret, name);
    Answered(in_thread(join).await.map_err(Refusal::Store))
}

/// Holds no thread while it waits.
pub(crate) async fn watch(
    State(service): State<Arc<Service>>,
    Extension(from): Extension<Arc<End>>,
    Paired(caller): Paired,
    Called(call): Called<Watch>,
) -> Answered<Changes> {
    Answered(watch_changes(&service, &from, &caller, &call).await)
}

async fn watch_changes(
    service: &Arc<Service>,
    from: &End,
    caller: &Caller,
    call: &Watch,
) -> Result<Changes, Refusal> {
    check(caller, Method::Watch, &call.prefix)?;
    let may = |change: &Change| may_read(caller, &change.key);
    let (watcher, store) = (&service.watcher, &service.members.store);
    let (prefix, after) = (&call.prefix, call.after);
    let changes = watcher.watch(store, prefix, after, call.wait(), |changes| {
        changes.changes.iter().any(may)
    });
    let asks_again = service.ends.ask_again(from.key);
    let changes = match unless_lost(&asks_again, changes).await {
        Some(changes) => changes,
        // At once: the epoch is that of the store.
        None => {
            let at_once = Duration::ZERO;
            watcher.watch(store, prefix, after, at_once, |_| true).await
        }
    };
    let mut changes = changes?;
    // Another coordinator of the same store may have revoked the machine meanwhile.
    let caller_now = service.caller(from.key).await?;
    check(&caller_now, Method::Watch, prefix)?;
    changes.changes.retain(may);
    Ok(changes)
}

fn may_read(caller: &Caller, key: &str) -> bool {
    check(caller, Method::Get, key).is_ok()
}
