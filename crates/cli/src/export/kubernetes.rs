//! Manifests of Kubernetes.

use nervure_dataflow::Dataflow;
use serde_json::{Map, Value, json};

use super::{
    cluster::{ClusterArguments, Container, LOGS, Role, STATE, containers},
    exported::Manifest,
    yaml,
};
use crate::failure::Failure;

/// Name of the Secret, and of its key, with the invitation of the machines.
const SECRET: &str = "nervure-invitation";
const SECRET_KEY: &str = "invitation";

/// Longest name of a StatefulSet: names of its pods and of their revisions are longer, and labels have
/// 63 characters.
const MAX_NAME_BYTES: usize = 52;

/// The manifest of a dataflow: one document for each container.
pub fn export(arguments: &ClusterArguments) -> Result<Vec<Manifest>, Failure> {
    let dataflow = arguments.exported.read()?;
    let containers = containers(arguments, &dataflow)?;
    let documents: Vec<String> = containers
        .iter()
        .map(|container| Ok(yaml::text(&workload(arguments, &dataflow, container)?)))
        .collect::<Result<_, Failure>>()?;
    let mut text = documents.join("---\n");
    if !dataflow.machines.is_empty() {
        let before = format!(
            "# The machines join with an invitation, which they do not need again:\n\
             # kubectl create secret generic {SECRET} \\\n\
             #   --from-literal={SECRET_KEY}=\"$(nervure machine invite --with-approval --valid 24h)\"\n"
        );
        text.insert_str(0, &before);
    }
    Ok(vec![Manifest {
        name: format!("{}.yml", dataflow.name),
        text,
    }])
}

fn workload(
    arguments: &ClusterArguments,
    dataflow: &Dataflow,
    container: &Container,
) -> Result<Value, Failure> {
    let name = name_of(dataflow, container.role.as_ref())?;
    let labels =
        json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": dataflow.name});
    let selector = json!({"matchLabels": {"app.kubernetes.io/name": name}});
    let mut spec = Map::from_iter([
        ("selector".to_owned(), selector),
        (
            "template".to_owned(),
            json!({"metadata": {"labels": labels}, "spec": pod(arguments, container)}),
        ),
    ]);
    let kind = match &container.role {
        None => {
            spec.insert("replicas".to_owned(), json!(1));
            // Never two at a time: they would use the same devices.
            spec.insert("strategy".to_owned(), json!({"type": "Recreate"}));
            "Deployment"
        }
        Some(Role { node: Some(_), .. }) => "DaemonSet",
        Some(Role { node: None, .. }) => {
            spec.insert("replicas".to_owned(), json!(1));
            spec.insert("serviceName".to_owned(), json!(name));
            spec.insert(
                "volumeClaimTemplates".to_owned(),
                json!([{
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "state"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }]),
            );
            "StatefulSet"
        }
    };
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }))
}

fn pod(arguments: &ClusterArguments, container: &Container) -> Value {
    let mut env: Vec<Value> = container
        .env
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let mut mounts = vec![json!({"name": "logs", "mountPath": LOGS})];
    let mut volumes = vec![json!({"name": "logs", "emptyDir": {}})];
    let mut pod = Map::new();
    if let Some(role) = &container.role {
        env.push(json!({
            "name": "NERVURE_INVITATION",
            "valueFrom": {"secretKeyRef": {"name": SECRET, "key": SECRET_KEY, "optional": true}},
        }));
        mounts.push(json!({"name": "state", "mountPath": STATE}));
        if let Some(node) = &role.node {
            // Other machines reach it at the address of its node.
            pod.insert("hostNetwork".to_owned(), json!(true));
            pod.insert(
                "nodeSelector".to_owned(),
                json!({"kubernetes.io/hostname": node}),
            );
            volumes.push(json!({
                "name": "state",
                "hostPath": {"path": STATE, "type": "DirectoryOrCreate"},
            }));
        }
    }
    let mut command = vec!["nervure"];
    command.extend(container.arguments.iter().map(String::as_str));
    // `$(NAME)` stands for a variable.
    let command: Vec<_> = command
        .iter()
        .map(|text| text.replace("$(", "$$("))
        .collect();
    let mut own = Map::from_iter([
        ("name".to_owned(), json!("nervure")),
        ("image".to_owned(), json!(arguments.image)),
        ("command".to_owned(), json!(command)),
        ("env".to_owned(), json!(env)),
        ("volumeMounts".to_owned(), json!(mounts)),
    ]);
    let resources = resources(container);
    if resources != json!({}) {
        own.insert("resources".to_owned(), resources);
    }
    if !container.capabilities.is_empty() {
        let capabilities = json!({"capabilities": {"add": container.capabilities}});
        own.insert("securityContext".to_owned(), capabilities);
    }
    pod.insert("containers".to_owned(), json!([own]));
    pod.insert("volumes".to_owned(), json!(volumes));
    // SIGTERM stops the nodes in order.
    pod.insert("terminationGracePeriodSeconds".to_owned(), json!(30));
    Value::Object(pod)
}

/// Samples lie in anonymous memory, which counts for the container, and in no mount: there is no limit
/// of `/dev/shm` to raise.
fn resources(container: &Container) -> Value {
    let mut requests = Map::new();
    let mut limits = Map::new();
    if let Some(millis) = container.cpu_millis {
        requests.insert("cpu".to_owned(), json!(format!("{millis}m")));
    }
    match (container.memory, container.samples) {
        (Some(bytes), _) => {
            requests.insert("memory".to_owned(), json!(bytes.to_string()));
            limits.insert("memory".to_owned(), json!(bytes.to_string()));
        }
        (None, 0) => {}
        (None, samples) => drop(requests.insert("memory".to_owned(), json!(samples.to_string()))),
    }
    let parts = [("requests", requests), ("limits", limits)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    Value::Object(
        parts
            .map(|(name, part)| (name.to_owned(), Value::Object(part)))
            .collect(),
    )
}

/// The name of a workload: of the dataflow, and of the role.
fn name_of(dataflow: &Dataflow, role: Option<&Role>) -> Result<String, Failure> {
    let name = match role {
        Some(role) => format!("{}-{}", dataflow.name, role.name),
        None => dataflow.name.clone(),
    };
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_outer = |c: char| is_inner(c) && c != '-';
    let fits = name.len() <= MAX_NAME_BYTES
        && name.chars().all(is_inner)
        && name.starts_with(is_outer)
        && name.ends_with(is_outer);
    if fits {
        return Ok(name);
    }
    let text = format!(
        "`{name}` is no name in Kubernetes: expected 1 to {MAX_NAME_BYTES} lower-case letters, digits and `-`"
    );
    Err(Failure::invalid(text).hint("`--name` names the dataflow; roles are named in its file"))
}
