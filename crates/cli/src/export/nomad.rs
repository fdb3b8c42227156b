//! Jobs of Nomad, in the JSON of its API, which `nomad job run -json` takes.

use nervure_dataflow::Dataflow;
use serde_json::{Map, Value, json};

use super::{
    cluster::{ClusterArguments, Container, STATE, containers},
    exported::Manifest,
};
use crate::failure::Failure;

/// Time from SIGTERM until the container is killed. Durations are in nanoseconds.
const KILL_TIMEOUT_NANOS: u64 = 30_000_000_000;

/// Name of the host volume, on nodes that roles are bound to, with the state of the machine.
const HOST_VOLUME: &str = "nervure";

/// Folder of an allocation that Nomad moves to the next one.
const STICKY: &str = "/alloc/data";

/// Folder with the log files of nodes.
const ALLOCATION_LOGS: &str = "/alloc/data/log";

/// The job of a dataflow: one group for each container.
pub fn export(arguments: &ClusterArguments) -> Result<Vec<Manifest>, Failure> {
    let dataflow = arguments.exported.read()?;
    let containers = containers(arguments, &dataflow)?;
    let groups: Vec<Value> = containers
        .into_iter()
        .map(|container| group(arguments, &dataflow, container))
        .collect::<Result<_, _>>()?;
    let name = &dataflow.name;
    let job = json!({
        "Job": {"ID": name, "Name": name, "Type": "service", "Datacenters": ["*"], "TaskGroups": groups},
    });
    let text = serde_json::to_string_pretty(&job)
        .map_err(|error| Failure::internal("the job cannot be written").because(error))?;
    if !dataflow.machines.is_empty() {
        note!(
            "the machines join with an invitation, which they do not need again: \
             `nomad var put nomad/jobs/{name} invitation=\"$(nervure machine invite --with-approval --valid 24h)\"`"
        );
    }
    Ok(vec![Manifest {
        name: format!("{name}.nomad.json"),
        text: text + "\n",
    }])
}

fn group(
    arguments: &ClusterArguments,
    dataflow: &Dataflow,
    mut container: Container,
) -> Result<Value, Failure> {
    let mut config = Map::from_iter([
        ("image".to_owned(), json!(arguments.image)),
        ("command".to_owned(), json!("nervure")),
        ("args".to_owned(), json!(escaped(&container.arguments))),
    ]);
    if !container.capabilities.is_empty() {
        let names = container
            .capabilities
            .iter()
            .map(|name| name.to_lowercase());
        config.insert("cap_add".to_owned(), names.collect());
    }
    let mut group = Map::from_iter([("Count".to_owned(), json!(1))]);
    let mut task = Map::new();
    let name = match &container.role {
        None => "nervure".to_owned(),
        Some(role) => {
            let variable = format!("nomad/jobs/{}", dataflow.name);
            task.insert(
                "Templates".to_owned(),
                json!([{
                    "EmbeddedTmpl": format!(
                        "{{{{ with nomadVar {variable:?} }}}}NERVURE_INVITATION={{{{ .invitation }}}}{{{{ end }}}}\n"
                    ),
                    "DestPath": "secrets/nervure.env",
                    "Envvars": true,
                    "ChangeMode": "noop",
                }]),
            );
            match &role.node {
                Some(node) => {
                    // Other machines reach it at the address of its node.
                    config.insert("network_mode".to_owned(), json!("host"));
                    let constraint =
                        json!({"LTarget": "${node.unique.name}", "Operand": "=", "RTarget": node});
                    group.insert("Constraints".to_owned(), json!([constraint]));
                    let volume = json!({"Name": "state", "Type": "host", "Source": HOST_VOLUME});
                    group.insert("Volumes".to_owned(), json!({"state": volume}));
                    let mount = json!({"Volume": "state", "Destination": STATE});
                    task.insert("VolumeMounts".to_owned(), json!([mount]));
                }
                None => {
                    let disk = json!({"Sticky": true, "Migrate": true, "SizeMB": 1024});
                    group.insert("EphemeralDisk".to_owned(), disk);
                    let state = ("NERVURE_STATE".to_owned(), STICKY.to_owned());
                    container.env.extend([state]);
                }
            }
            role.name.clone()
        }
    };
    let logs = ("NERVURE_LOG_DIR".to_owned(), ALLOCATION_LOGS.to_owned());
    container.env.extend([logs]);
    task.extend([
        ("Name".to_owned(), json!("nervure")),
        ("Driver".to_owned(), json!("docker")),
        ("Config".to_owned(), Value::Object(config)),
        ("Env".to_owned(), json!(container.env)),
        ("KillTimeout".to_owned(), json!(KILL_TIMEOUT_NANOS)),
        ("Resources".to_owned(), resources(&container)?),
    ]);
    group.insert("Name".to_owned(), json!(name));
    group.insert("Tasks".to_owned(), json!([task]));
    Ok(Value::Object(group))
}

fn resources(container: &Container) -> Result<Value, Failure> {
    let memory = container.memory.ok_or_else(|| {
        Failure::invalid(
            "Nomad gives a task 300 MB of memory, samples included, unless the job names more",
        )
        .hint("name the memory of each container, such as `--memory 2GiB`")
    })?;
    let mut resources = Map::from_iter([("MemoryMB".to_owned(), json!(memory.div_ceil(1 << 20)))]);
    if let Some(millis) = container.cpu_millis {
        if millis % 1000 != 0 {
            let text = format!(
                "`--cpus {}`: Nomad reserves whole processors",
                f64::from(millis) / 1000.0
            );
            return Err(Failure::invalid(text));
        }
        resources.insert("Cores".to_owned(), json!(millis / 1000));
    }
    Ok(Value::Object(resources))
}

/// Arguments in which Nomad finds no variable: these begin with `${`.
fn escaped(arguments: &[String]) -> Vec<String> {
    let arguments = arguments.iter();
    arguments.map(|text| text.replace("${", "$${")).collect()
}
