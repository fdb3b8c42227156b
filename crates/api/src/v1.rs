//! The API: the `--json` output of other commands over HTTP.
//!
//! Each handler has its path and its answers beside it, from which the OpenAPI document is made. A
//! route that is not in the document cannot be registered.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    extract::{Path, Query},
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use nervure_fleet::{answers::Machines, members};
use nervure_inspect::{
    answers::{
        ErrorAnswer, Explanations, Hints, Holders, Listing, Load, Logs, Params, Status, TopicInfos,
        Topics,
    },
    explain, holders, lint, listing, load, logs, params, status, topics,
};
use nervure_protocol::report::Level;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::spawn_blocking;
use utoipa::{
    IntoParams, Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Error,
    common::{Checked, OfDataflow, OfTopics, Shared, failed},
};

/// The interval over which the load is measured.
const LOAD_MILLIS: u64 = 500;

/// The interval over which a dataflow is measured for hints.
const LINT_MILLIS: u64 = 3000;

/// The longest interval of a measurement.
const MAX_INTERVAL_MILLIS: u64 = 10_000;

/// Log records of an answer, and at most.
const LOG_RECORDS: usize = 1000;
const MAX_LOG_RECORDS: usize = 100_000;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Nervure",
        description = "State of running dataflows and of the machines of a fleet. Errors are those of the command `nervure`."
    ),
    modifiers(&Token),
    security(("token" = []))
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "The text in the file `api-token` of the state folder of `nervure serve`",
            ))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// All routes, with the document of them.
pub fn router() -> axum::Router<Arc<Shared>> {
    let (router, document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(dataflows))
        .routes(routes!(dataflow))
        .routes(routes!(load))
        .routes(routes!(topics))
        .routes(routes!(topic_infos))
        .routes(routes!(holders_of_topics))
        .routes(routes!(explanations))
        .routes(routes!(hints))
        .routes(routes!(params))
        .routes(routes!(logs_of_dataflow))
        .routes(routes!(machines))
        .merge(crate::orders::router())
        .merge(crate::membership::router())
        .merge(crate::recordings::router())
        .merge(crate::streams::router())
        .split_for_parts();
    let document = Bytes::from(json!(document).to_string());
    let json = [(header::CONTENT_TYPE, "application/json")];
    router.route(
        "/v1/openapi.json",
        get(move || async move { (json, document) }),
    )
}

/// List the running dataflows, as `nervure list`
#[utoipa::path(get, path = "/v1/dataflows", responses(
    (status = 200, description = "The dataflows", body = Listing),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn dataflows() -> Response {
    answer(listing::listing).await
}

/// Show the state of a dataflow, as `nervure status`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}", params(OfDataflow), responses(
    (status = 200, description = "Its state", body = Status),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn dataflow(Checked(of): Checked<Path<OfDataflow>>) -> Response {
    answer(move || status::status(&of.dataflow)).await
}

/// Show the load of nodes and the traffic on edges, as `nervure top`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/load", params(OfDataflow, OverInterval), responses(
    (status = 200, description = "The load, after the interval", body = Load),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn load(
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(over): Checked<Query<OverInterval>>,
) -> Response {
    let interval = over.interval(LOAD_MILLIS);
    answer(move || load::load(&of.dataflow, interval)).await
}

/// List the topics of a dataflow, as `nervure topic list`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/topics", params(OfDataflow), responses(
    (status = 200, description = "Its topics", body = Topics),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn topics(Checked(of): Checked<Path<OfDataflow>>) -> Response {
    answer(move || topics::topics(&of.dataflow)).await
}

/// Show topics with their edges, as `nervure topic info`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/topics/info", params(OfDataflow, OfTopics), responses(
    (status = 200, description = "The topics", body = TopicInfos),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn topic_infos(
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(selected): Checked<Query<OfTopics>>,
) -> Response {
    answer(move || topics::infos(&of.dataflow, &selected.patterns())).await
}

/// List the consumers of topics with the samples that they hold, as `nervure holders`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/holders", params(OfDataflow, OfTopics), responses(
    (status = 200, description = "The consumers", body = Holders),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn holders_of_topics(
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(selected): Checked<Query<OfTopics>>,
) -> Response {
    answer(move || holders::holders(&of.dataflow, &selected.patterns())).await
}

/// Explain where and why samples were lost, as `nervure explain`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/explain", params(OfDataflow, OfTopics), responses(
    (status = 200, description = "The edges, with the causes of their losses", body = Explanations),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn explanations(
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(selected): Checked<Query<OfTopics>>,
) -> Response {
    answer(move || explain::explanations(&of.dataflow, &selected.patterns())).await
}

/// Suggest better settings for a dataflow, as `nervure lint`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/lint", params(OfDataflow, OverInterval), responses(
    (status = 200, description = "The hints, after the interval", body = Hints),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn hints(
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(over): Checked<Query<OverInterval>>,
) -> Response {
    let window = over.interval(LINT_MILLIS);
    answer(move || lint::hints(&of.dataflow, window)).await
}

/// List the parameters of the nodes of a dataflow, as `nervure param list`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/params", params(OfDataflow), responses(
    (status = 200, description = "The parameters", body = Params),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn params(Checked(of): Checked<Path<OfDataflow>>) -> Response {
    answer(move || params::params(&of.dataflow)).await
}

/// Show the newest log records of a dataflow, as `nervure logs`
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/logs", params(OfDataflow, LogQuery), responses(
    (status = 200, description = "The records", body = Logs),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn logs_of_dataflow(
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(query): Checked<Query<LogQuery>>,
) -> Response {
    answer(move || query.records(&of.dataflow)).await
}

/// List the machines of the fleet, as `nervure machine list`
#[utoipa::path(get, path = "/v1/machines", responses(
    (status = 200, description = "The machines", body = Machines),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn machines() -> Response {
    answer(members::machines_of_fleet).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OverInterval {
    /// Measure over this time, 10 s at most. Default: 500, for hints 3000.
    interval_millis: Option<u64>,
}

impl OverInterval {
    fn interval(&self, default_millis: u64) -> Duration {
        let millis = self.interval_millis.unwrap_or(default_millis);
        Duration::from_millis(millis.min(MAX_INTERVAL_MILLIS))
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// Only of this node; `nervure` is the keeper.
    node: Option<String>,
    /// Only of this level and above: `trace`, `debug`, `info`, `warn` or `error`.
    #[param(value_type = Option<String>)]
    level: Option<Level>,
    /// Only those that match this regular expression.
    pattern: Option<String>,
    /// Only those not older than this.
    since_seconds: Option<f64>,
    /// At most this number, the newest. Default: 1000; at most 100000.
    most: Option<usize>,
}

impl LogQuery {
    fn records(&self, dataflow: &str) -> Result<Logs, Error> {
        let pattern = self.pattern.as_deref().map(Regex::new).transpose();
        let pattern = pattern.map_err(Error::Pattern)?;
        let since = self.since_seconds.map_or(i64::MIN, |seconds| {
            // As far back as the clock goes, for absurd values.
            nervure_shm::utc_nanos().saturating_sub((seconds.max(0.0) * 1e9) as i64)
        });
        let nodes: Vec<String> = self.node.iter().cloned().collect();
        let filter = logs::Filter {
            nodes: &nodes,
            level: self.level.unwrap_or(Level::Trace),
            pattern: pattern.as_ref(),
            since_utc_nanos: since,
        };
        let most = self.most.unwrap_or(LOG_RECORDS).min(MAX_LOG_RECORDS);
        Ok(logs::logs(dataflow, &filter, most)?)
    }
}

/// Asks keepers and daemons, in a thread of its own.
async fn answer<T: Serialize + 'static, E: Into<Error> + 'static>(
    ask: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Response {
    // As JSON in that thread: it may be large.
    let asked = spawn_blocking(move || match ask() {
        Ok(answer) => Ok(json!(answer).to_string()),
        Err(error) => Err(error.into()),
    });
    let result = asked.await.unwrap_or_else(|_| Err(Error::Panicked));
    match result {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => failed(&error),
    }
}
