//! `nervure export`.

use std::{fs, path::Path, process::Command};

use insta::assert_snapshot;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::dataflow::nervure;

const ONE_HOST: &str = "\
nodes:
  - id: camera
    path: sh
    inputs: {tick: nervure/timer/hz/30}
    outputs: [image]
    shared_memory: 64MiB
    memory_lock: true
    scheduling: {policy: fifo, priority: 20}
    params: {fps: 30, title: none}
";

const FLEET: &str = "\
machines: {robot: {}, edge: {labels: {gpu: \"true\"}}}
nodes:
  - id: camera
    path: sh
    inputs: {tick: nervure/timer/hz/30}
    outputs: [image]
  - id: planner
    path: sh
    machine: edge
    inputs: {image: camera/image}
    outputs: [plan]
    shared_memory: 1GiB
";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("watch.yml"), ONE_HOST).unwrap();
    fs::write(folder.path().join("two.yml"), FLEET).unwrap();
    folder
}

fn export(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = nervure(folder)
        .arg("export")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn exported(folder: &Path, arguments: &[&str]) -> String {
    let (code, text, errors) = export(folder, arguments);
    assert_eq!(code, 0, "{errors}");
    text
}

/// The errors of wrong command lines.
fn refusals(folder: &Path, lines: &[&[&str]]) -> String {
    let refusals = lines.iter().map(|arguments| {
        let (code, text, errors) = export(folder, arguments);
        assert_eq!((code, text.as_str()), (2, ""), "{arguments:?}");
        format!("$ nervure export {}\n{errors}", arguments.join(" "))
    });
    refusals.collect::<Vec<_>>().join("\n")
}

/// The text with the paths of this run replaced.
fn in_place(text: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_nervure"));
    let programs = program.canonicalize().unwrap();
    let folder = folder.canonicalize().unwrap();
    text.replace(
        programs.parent().unwrap().to_str().unwrap(),
        "/opt/robot/bin",
    )
    .replace(folder.to_str().unwrap(), "/srv/watch")
}

/// Checks services by systemd, where it is installed.
fn verify(files: &[&Path]) {
    let output = Command::new("systemd-analyze")
        .arg("verify")
        .args(files)
        .output();
    let Ok(output) = output else {
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    let own: Vec<_> = errors
        .lines()
        .filter(|line| {
            files
                .iter()
                .any(|file| line.contains(file.file_name().unwrap().to_str().unwrap()))
        })
        .collect();
    assert!(output.status.success() && own.is_empty(), "{errors}");
}

#[test]
fn a_service_of_systemd() {
    let folder = folder();
    let here = folder.path();
    let line = &[
        "systemd",
        "--user=robot",
        "watch.yml",
        "camera.title=50 % of $5",
        "--env=MODE=a b",
    ];
    assert_snapshot!(in_place(&exported(here, line), here));
    exported(here, &[line, &["--out=units"][..]].concat());
    verify(&[&here.join("units/watch.service")]);
    let (code, _, errors) = export(here, &[line, &["--out=units"][..]].concat());
    assert_eq!(code, 2);
    assert!(errors.contains("watch.service exists"), "{errors}");
}

#[test]
fn services_of_daemons() {
    let folder = folder();
    let here = folder.path();
    assert_snapshot!(in_place(
        &exported(here, &["systemd", "--user=robot", "two.yml"]),
        here
    ));
    exported(here, &["systemd", "--user=robot", "two.yml", "--out=units"]);
    verify(&[
        &here.join("units/nervure.service"),
        &here.join("units/nervure-coordinator.service"),
    ]);
}

/// A document is one of the type if the type keeps all of it: unknown fields would be missing.
fn is_of_type<T: DeserializeOwned + Serialize>(document: &Value) {
    let typed: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), document);
}

/// The documents of a manifest, each of which is an object of Kubernetes.
fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents
        .inspect(|document| match document["kind"].as_str() {
            Some("Deployment") => is_of_type::<Deployment>(document),
            Some("DaemonSet") => is_of_type::<DaemonSet>(document),
            Some("StatefulSet") => is_of_type::<StatefulSet>(document),
            kind => panic!("{kind:?}"),
        })
        .collect()
}

#[test]
fn a_deployment_of_kubernetes() {
    let folder = folder();
    let line = [
        "kubernetes",
        "--image=registry.lan/watch:7",
        "watch.yml",
        "camera.title=$(HOME)",
        "--cpus=1.5",
    ];
    let text = exported(folder.path(), &line);
    assert_snapshot!(text);
    let documents = documents(&text);
    let container = &documents[0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "1500m", "memory": "67108864"}}),
        "the samples need room, whatever the programs do"
    );
}

#[test]
fn machines_in_kubernetes() {
    let folder = folder();
    let line = [
        "kubernetes",
        "--image=registry.lan/nervure:7",
        "two.yml",
        "--bind=robot=r07.lan",
        "--memory=2GiB",
    ];
    let text = exported(folder.path(), &line);
    assert_snapshot!(text);
    let kinds: Vec<_> = documents(&text)
        .iter()
        .map(|document| document["kind"].clone())
        .collect();
    assert_eq!(kinds, ["DaemonSet", "StatefulSet"]);
    let one = exported(folder.path(), &[&line[..], &["--role=edge"]].concat());
    assert_eq!(documents(&one).len(), 1);
}

#[test]
fn jobs_of_nomad() {
    let folder = folder();
    let line = [
        "nomad",
        "--image=watch",
        "watch.yml",
        "camera.title=${HOME}",
        "--memory=1GiB",
        "--cpus=2",
    ];
    assert_snapshot!(exported(folder.path(), &line));
    let line = [
        "nomad",
        "--image=registry.lan/nervure:7",
        "two.yml",
        "--bind=robot=r07",
        "--memory=2GiB",
    ];
    assert_snapshot!(exported(folder.path(), &line));
}

#[test]
fn what_a_manifest_cannot_express_is_named() {
    let folder = folder();
    let here = folder.path();
    let image = "--image=watch";
    assert_snapshot!(refusals(
        here,
        &[
            &["kubernetes", image, "watch.yml", "--bind=robot=r07"],
            &["kubernetes", image, "two.yml", "--bind=robto=r07"],
            &[
                "kubernetes",
                image,
                "two.yml",
                "--bind=robot=r07",
                "--bind=edge=r07"
            ],
            &["kubernetes", image, "two.yml", "--env=A=1"],
            &["kubernetes", image, "watch.yml", "--name=Watch_1"],
            &["kubernetes", image, "watch.yml", "--memory=64MiB"],
            &["kubernetes", image, "two.yml", "--memory=1GiB"],
            &["kubernetes", image, "watch.yml", "--cpus=0.0001"],
            &["nomad", image, "watch.yml"],
            &["nomad", image, "watch.yml", "--memory=1GiB", "--cpus=0.5"],
            &["systemd", "--user=robot", "watch.yml", "camera.title=a\nb"],
            &["systemd", "--user=root\n", "watch.yml"],
        ]
    ));
}
