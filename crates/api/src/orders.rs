//! Requests that change something.
//!
//! Each is carried out by the command of the same name, in a process of its own, and answered by its
//! `--json`. So it runs to its end when the connection or this server ends, and can do neither
//! more nor less than the command.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::Arc,
};

use axum::{
    Json,
    extract::{FromRequest, Path, Query, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use nervure_fleet::runs;
use nervure_inspect::{
    INVALID,
    answers::{ErrorAnswer, Param},
    places,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Error,
    common::{Checked, OfDataflow, Shared, failed, refused},
};

/// The routes.
pub fn router() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(start))
        .routes(routes!(stop))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(order_node))
        .routes(routes!(set_param))
}

/// Start a dataflow that runs in the background, as `nervure run --detach` or `nervure start`
#[utoipa::path(post, path = "/v1/dataflows", request_body = Start, responses(
    (status = 200, description = "It runs: the last object that the command writes", body = Object),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn start(State(shared): State<Arc<Shared>>, body: Body<Start>) -> Response {
    let start = body.0;
    if !start.file.starts_with('/') {
        return failed(&Error::Relative(start.file));
    }
    // A command that reads a pipe or a device may never end. One that is missing is named by the command.
    if fs::metadata(&start.file).is_ok_and(|file| !file.is_file()) {
        return failed(&Error::NoFile(start.file));
    }
    let mut arguments = match start.on_fleet {
        true => vec!["start".to_owned()],
        false => vec!["run".to_owned(), "--detach".to_owned()],
    };
    let bind = start.bind.iter();
    arguments.extend(bind.map(|(role, machine)| format!("--bind={role}={machine}")));
    arguments.extend(start.name.map(|name| format!("--name={name}")));
    arguments.extend(["--json".to_owned(), "--".to_owned(), start.file]);
    let params = start.params.iter();
    arguments.extend(params.map(|(param, value)| format!("{param}={}", text_of(value))));
    run(shared, None, arguments).await
}

/// Stop a dataflow, and wait until it has ended, as `nervure stop`
#[utoipa::path(post, path = "/v1/dataflows/{dataflow}/stop", params(OfDataflow, How), responses(
    (status = 200, description = "It has ended", body = Stopped),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn stop(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(how): Checked<Query<How>>,
) -> Response {
    let mut arguments = vec!["stop".to_owned()];
    arguments.extend(how.kill.then(|| "--kill".to_owned()));
    on_instances(shared, of, arguments).await
}

/// Pause a dataflow, as `nervure pause`
#[utoipa::path(post, path = "/v1/dataflows/{dataflow}/pause", params(OfDataflow), responses(
    (status = 200, description = "It is paused", body = Paused),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn pause(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfDataflow>>,
) -> Response {
    on_instances(shared, of, vec!["pause".to_owned()]).await
}

/// Let a paused dataflow go on, as `nervure resume`
#[utoipa::path(post, path = "/v1/dataflows/{dataflow}/resume", params(OfDataflow), responses(
    (status = 200, description = "It goes on", body = Paused),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn resume(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfDataflow>>,
) -> Response {
    on_instances(shared, of, vec!["resume".to_owned()]).await
}

/// Stop, start or restart a node, and wait until that is done, as `nervure node`
#[utoipa::path(post, path = "/v1/dataflows/{dataflow}/nodes/{node}/{order}", params(OfNode), responses(
    (status = 200, description = "It is done", body = NodeOrdered),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn order_node(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfNode>>,
) -> Response {
    let order = match of.order {
        Order::Stop => "stop",
        Order::Start => "start",
        Order::Restart => "restart",
    };
    let dataflow = OfDataflow {
        dataflow: of.dataflow,
    };
    let arguments = vec!["node".to_owned(), order.to_owned()];
    on_dataflow(shared, dataflow, arguments, vec![of.node]).await
}

/// Change a parameter of a node, as `nervure param set`
#[utoipa::path(put, path = "/v1/dataflows/{dataflow}/params/{node}/{name}", params(OfParam), request_body = SetParam, responses(
    (status = 200, description = "The parameter", body = Param),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn set_param(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfParam>>,
    body: Body<SetParam>,
) -> Response {
    let dataflow = OfDataflow {
        dataflow: of.dataflow,
    };
    let arguments = vec!["param".to_owned(), "set".to_owned()];
    let rest = vec![of.node, of.name, text_of(&body.0.value)];
    on_dataflow(shared, dataflow, arguments, rest).await
}

/// What to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Start {
    /// The absolute path of a dataflow file on the machine of this server.
    file: String,
    /// Name of the dataflow. Default: the name of the file.
    name: Option<String>,
    /// Parameters of nodes, as `node.name`.
    #[serde(default)]
    #[schema(value_type = Object)]
    params: BTreeMap<String, Value>,
    /// Start it on the machines of the fleet (`nervure start`).
    #[serde(default)]
    on_fleet: bool,
    /// The machine of each role, on a fleet.
    #[serde(default)]
    bind: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetParam {
    /// The new value.
    #[schema(value_type = Value)]
    value: Value,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct How {
    /// Kill the nodes, without a grace period.
    #[serde(default)]
    kill: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct OfNode {
    /// Its name, or the process id of its keeper.
    dataflow: String,
    node: String,
    #[param(inline)]
    order: Order,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    Stop,
    Start,
    Restart,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct OfParam {
    /// Its name, or the process id of its keeper.
    dataflow: String,
    node: String,
    /// The name of the parameter.
    name: String,
}

/// A dataflow that has ended: the JSON of `nervure stop`.
#[derive(Debug, Serialize, ToSchema)]
struct Stopped {
    dataflow: String,
    stopped: bool,
    /// The answer for each instance, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    instances: Vec<Value>,
}

/// A dataflow that is paused or resumed: the JSON of `nervure pause`.
#[derive(Debug, Serialize, ToSchema)]
struct Paused {
    dataflow: String,
    paused: bool,
    /// The answer for each instance, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    instances: Vec<Value>,
}

/// A node after an order: the JSON of `nervure node`.
#[derive(Debug, Serialize, ToSchema)]
struct NodeOrdered {
    dataflow: String,
    node: String,
    /// `stop`, `start` or `restart`.
    order: String,
    /// Its process, if it runs.
    pid: Option<u32>,
}

/// A body in JSON. A parse error has the form of all errors.
pub struct Body<T>(pub T);

impl<S, T> FromRequest<S> for Body<T>
where
    S: Send + Sync,
    T: serde::de::DeserializeOwned,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => {
                let status = rejection.status();
                Err(refused(status, &Error::Body(rejection)))
            }
        }
    }
}

/// A value as on the command line.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Gives an order to a dataflow or all its instances, as the command does.
async fn on_instances(shared: Arc<Shared>, of: OfDataflow, mut arguments: Vec<String>) -> Response {
    let name = of.dataflow;
    arguments.extend(["--json".to_owned(), format!("--dataflow={name}")]);
    let carry_out = move || match places::find(Some(&name)) {
        Err(error) if !runs::has_run(&name)? => Err(error.into()),
        _ => {
            let (status, lines) = output_of(&arguments)?;
            Ok((status, of_instances(&name, lines)))
        }
    };
    answer(shared, carry_out).await
}

/// The answer for a dataflow from those for its instances.
fn of_instances(name: &str, mut lines: Vec<Value>) -> Value {
    let last = lines.pop().unwrap_or_default();
    if lines.is_empty() || last.get("dataflow").is_none() {
        return last;
    }
    lines.push(last);
    let done = ["stopped", "paused"].into_iter();
    let mut whole = json!({"dataflow": name});
    for (key, value) in done.filter_map(|key| Some((key, lines[0].get(key)?))) {
        whole[key] = value.clone();
    }
    whole["instances"] = lines.into();
    whole
}

async fn on_dataflow(
    shared: Arc<Shared>,
    of: OfDataflow,
    mut arguments: Vec<String>,
    rest: Vec<String>,
) -> Response {
    arguments.extend(["--json".to_owned(), format!("--dataflow={}", of.dataflow)]);
    if !rest.is_empty() {
        // The next arguments are values, even if they begin with a dash.
        arguments.push("--".to_owned());
        arguments.extend(rest);
    }
    run(shared, Some(of.dataflow), arguments).await
}

/// Runs the command with these arguments; for a dataflow, if there is one of this name.
pub async fn run(
    shared: Arc<Shared>,
    dataflow: Option<String>,
    arguments: Vec<String>,
) -> Response {
    let carry_out = move || {
        if let Some(name) = &dataflow {
            places::find(Some(name))?;
        }
        let (status, mut lines) = output_of(&arguments)?;
        Ok((status, lines.pop().unwrap_or_default()))
    };
    answer(shared, carry_out).await
}

/// Carries something out beside the requests, and answers with its JSON.
async fn answer(
    shared: Arc<Shared>,
    carry_out: impl FnOnce() -> Result<(StatusCode, Value), Error> + Send + 'static,
) -> Response {
    let Ok(permit) = Arc::clone(&shared.orders).try_acquire_owned() else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, &Error::Busy);
    };
    let carried_out = spawn_blocking(move || {
        let _permit = permit;
        carry_out()
    });
    let result = carried_out.await.unwrap_or_else(|_| Err(Error::Panicked));
    match result {
        Ok((status, value)) => (status, Json(value)).into_response(),
        Err(error) => failed(&error),
    }
}

/// The JSON output of the command, one value per line.
fn output_of(arguments: &[String]) -> Result<(StatusCode, Vec<Value>), Error> {
    let output = Command::new("/proc/self/exe")
        .args(arguments)
        // Ctrl-C is for the server.
        .process_group(0)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(Error::Command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().next_back().unwrap_or_default();
    if serde_json::from_str::<Value>(last).is_err() {
        return Err(Error::NoAnswer(Some(output.status)));
    }
    let lines = text
        .lines()
        .map(serde_json::from_str)
        .filter_map(Result::ok);
    let status = match output.status.code() {
        Some(0) => StatusCode::OK,
        Some(code) if code == i32::from(INVALID) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Ok((status, lines.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_for_a_dataflow_has_those_for_its_instances() {
        let stopped = |name: &str| json!({"dataflow": name, "stopped": true});
        let alone = of_instances("two", vec![stopped("two")]);
        assert_eq!(alone, stopped("two"));
        let both = vec![stopped("two@r1"), stopped("two@r2")];
        assert_eq!(
            of_instances("two", both.clone()),
            json!({"dataflow": "two", "stopped": true, "instances": both})
        );
        let failed = json!({"error": {"message": "r2 did not answer"}});
        let lines = vec![stopped("two@r1"), failed.clone()];
        assert_eq!(of_instances("two", lines), failed);
    }
}
