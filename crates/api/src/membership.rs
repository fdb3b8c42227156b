//! Requests that change the members of the fleet. Machines that wait for approval are in the list of machines; open
//! invitations can be read by no machine.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use nervure_coordinator::Role;
use nervure_fleet::answers::{Invited, ManagedMachine};
use nervure_inspect::answers::ErrorAnswer;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Error,
    common::{Checked, Shared, failed},
    orders::{Body, run},
};

/// The routes.
pub fn router() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(invite))
        .routes(routes!(approve))
        .routes(routes!(revoke))
}

/// Make an invitation for a machine, as `nervure machine invite`
#[utoipa::path(post, path = "/v1/invitations", request_body = Invite, responses(
    (status = 200, description = "The invitation", body = Invited),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn invite(State(shared): State<Arc<Shared>>, body: Body<Invite>) -> Response {
    let invite = body.0;
    if !(1.0..=1e9).contains(&invite.valid_seconds) {
        return failed(&Error::Lifetime);
    }
    let mut arguments = vec!["machine".to_owned(), "invite".to_owned()];
    arguments.push(format!("--role={}", invite.role));
    arguments.push(format!("--valid={}ms", (invite.valid_seconds * 1e3) as u64));
    arguments.extend(invite.with_approval.then(|| "--with-approval".to_owned()));
    arguments.push("--json".to_owned());
    run(shared, None, arguments).await
}

/// Admit a machine that waits for approval, as `nervure machine approve`
#[utoipa::path(post, path = "/v1/machines/{machine}/approve", params(OfMachine), responses(
    (status = 200, description = "It belongs to the fleet", body = ManagedMachine),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn approve(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfMachine>>,
) -> Response {
    manage(shared, "approve", of).await
}

/// Exclude a machine from the fleet, as `nervure machine revoke`
#[utoipa::path(post, path = "/v1/machines/{machine}/revoke", params(OfMachine), responses(
    (status = 200, description = "It is excluded", body = ManagedMachine),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn revoke(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfMachine>>,
) -> Response {
    manage(shared, "revoke", of).await
}

async fn manage(shared: Arc<Shared>, order: &str, of: OfMachine) -> Response {
    let words = ["machine", order, "--json", "--", &of.machine];
    run(shared, None, words.map(str::to_owned).to_vec()).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct OfMachine {
    /// The name of the machine.
    machine: String,
}

/// An invitation to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Invite {
    /// `operator`, `robot` (default) or `observer`.
    #[serde(default)]
    #[schema(value_type = String)]
    role: Role,
    /// Invite any number of machines, each of which waits for approval.
    #[serde(default)]
    with_approval: bool,
    /// Lifetime of the invitation. Default: an hour.
    #[serde(default = "an_hour")]
    valid_seconds: f64,
}

fn an_hour() -> f64 {
    3600.0
}
