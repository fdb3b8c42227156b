//! The library `nervure-launch`, without `nervure run`: this test starts the dataflows.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nervure_launch::{Assignment, Error, ErrorKind, Launch, Options, Overrides, Running};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process};

/// Time limit of a wait; the tests need only a small part of it.
const PATIENCE: Duration = Duration::from_secs(60);

fn command() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_nervure"))
}

/// Log folders come from the environment of this process, so that none is made.
fn options(file: &Path) -> Options {
    Options {
        file: Some(file.to_owned()),
        has_logs: false,
        ..Options::default()
    }
}

fn prepare(file: &Path, overrides: &Overrides) -> Result<Launch, Error> {
    let dataflow = overrides.apply(overrides.load_to_start(file))?;
    Launch::prepare(&dataflow, options(file), &mut |warning| panic!("{warning}"))
}

fn start(dataflow: &Dataflow, overrides: &Overrides) -> (PathBuf, Running) {
    let file = dataflow.write();
    let launch = prepare(&file, overrides).unwrap();
    let running = launch.run(command()).unwrap();
    (file, running)
}

#[test]
fn a_program_starts_a_dataflow_and_gets_its_outcome() {
    let dataflow = Dataflow::named()
        .raw(json!({
            "id": "writer", "path": "sh", "args": ["-c", "echo ${GREETING:-none} > greeting"],
        }))
        .shell("failing", "echo it has no camera >&2; exit 3", json!({}));
    let overrides = Overrides {
        variables: vec![Assignment::variable("GREETING=hello").unwrap()],
        ..Overrides::default()
    };
    let (_, mut running) = start(&dataflow, &overrides);
    let outcome = running.wait(PATIENCE).unwrap().expect("it ends");
    let failed: Vec<_> = outcome
        .failed
        .iter()
        .map(|ended| (ended.id.as_str(), ended.code, ended.stderr_tail.concat()))
        .collect();
    assert_eq!(
        failed,
        [("failing", Some(3), "it has no camera".to_owned())]
    );
    assert!(outcome.has_failures() && outcome.failed_edges.is_empty());
    let greeting = fs::read_to_string(dataflow.folder().join("greeting")).unwrap();
    assert_eq!(greeting, "hello\n");
}

fn pair() -> Dataflow {
    Dataflow::named()
        .node("source", "source 1000000 10 1", json!({"outputs": ["out"]}))
        .node("sink", "sink 0", json!({"inputs": {"in": "source/out"}}))
}

#[test]
fn a_program_waits_until_every_node_is_ready_and_stops_them() {
    let dataflow = pair();
    let (file, mut running) = start(&dataflow, &Overrides::default());
    assert!(running.wait_ready(PATIENCE).unwrap());
    let second = prepare(&file, &Overrides::default()).unwrap_err();
    assert_eq!(second.kind, ErrorKind::Invalid);
    assert!(second.text.contains("already runs"), "{second}");
    assert!(running.wait(Duration::ZERO).unwrap().is_none());
    running.stop("the test is over");
    let outcome = running.wait(PATIENCE).unwrap().expect("it ends");
    assert!(!outcome.has_failures(), "{outcome:?}");
}

#[test]
fn a_dropped_dataflow_ends() {
    let dataflow = pair();
    let (_, running) = start(&dataflow, &Overrides::default());
    let keeper = Process::new(running.keeper().into());
    drop(running);
    keeper.assert_ends();
}

#[test]
fn a_killed_keeper_is_an_error() {
    let dataflow = Dataflow::named().node("idle", "idle", json!({}));
    let (_, mut running) = start(&dataflow, &Overrides::default());
    assert!(running.wait_ready(PATIENCE).unwrap());
    Process::new(running.keeper().into()).signal(Signal::KILL);
    let error = running.wait(PATIENCE).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.text.contains("ended before its nodes"), "{error}");
}

#[test]
fn errors_have_causes_hints_and_findings() {
    let dataflow = Dataflow::named().node("camera", "idle", json!({"params": {"fps": 30}}));
    let file = dataflow.write();
    let read = |param: &str| {
        let overrides = Overrides {
            params: vec![Assignment::param(param).unwrap()],
            ..Overrides::default()
        };
        overrides.apply(overrides.load_to_start(&file)).unwrap_err()
    };
    let unknown = read("camera.fqs=60");
    assert_eq!(unknown.text, "node `camera` has no parameter `fqs`");
    assert!(unknown.hint.unwrap().contains("fps"));
    fs::write(&file, "nodes: [{id: camera, path: missing.py}]").unwrap();
    let missing = read("camera.fps=60");
    assert_eq!(missing.kind, ErrorKind::Invalid);
    assert!(missing.text.contains("cannot be used"), "{missing}");
    let errors = missing.findings.iter().filter(|finding| finding.is_error());
    assert_eq!(errors.count(), 1, "{:?}", missing.findings);
    let launch = Launch::prepare(
        &dataflow_of("nodes: [{id: one, path: sh}]", &file),
        options(&file),
        &mut |warning| panic!("{warning}"),
    );
    let not_started = launch.unwrap().run(Path::new("/no/nervure")).unwrap_err();
    assert_eq!(not_started.text, "cannot start the keeper");
    assert_eq!(not_started.causes.len(), 1);
}

#[test]
fn arguments_of_a_file_take_the_values_of_overrides() {
    let dataflow = Dataflow::named();
    let file = dataflow.write();
    let text = "
args: {rate: {value: 5, max: 60}, name: idle}
nodes: [{id: node, path: sh, params: {fps: '${args.rate}', name: '${args.name}'}}]
";
    fs::write(&file, text).unwrap();
    let overrides = |params: &[&str]| Overrides {
        params: params
            .iter()
            .map(|text| Assignment::param(text).unwrap())
            .collect(),
        ..Overrides::default()
    };
    let read = |overrides: Overrides| overrides.apply(overrides.load_to_start(&file));
    let values = |params: &[&str]| -> Vec<Value> {
        let node = read(overrides(params)).unwrap().nodes.remove(0);
        let params = node.settings.params.into_iter();
        params.map(|param| param.value).collect()
    };
    assert_eq!(values(&[]), [json!(5), json!("idle")]);
    // The text of a number stays text where text belongs.
    assert_eq!(
        values(&["rate=60", "name=7", "node.name=own"]),
        [json!(60), json!("own")]
    );
    assert_eq!(values(&["name=7"]), [json!(5), json!("7")]);
    let refused = read(overrides(&["rate=61"])).unwrap_err();
    let message = &refused.findings[0].message;
    assert_eq!(message, "`rate=61` was given: `rate` is at most 60, got 61");
    let unknown = read(overrides(&["rat=6"])).unwrap_err();
    assert_eq!(unknown.hint.as_deref(), Some("did you mean `rate`?"));
    // Another program for a node gets its parameters, and the arguments that its file declares.
    let of_node = overrides(&["rate=7", "size=1", "node.name=a", "other.name=b"]);
    let of_node = of_node.of_node("node", &file);
    assert_eq!(of_node, overrides(&["rate=7", "node.name=a"]));
}

fn dataflow_of(text: &str, file: &Path) -> nervure_dataflow::Dataflow {
    fs::write(file, text).unwrap();
    let overrides = Overrides::default();
    overrides.apply(overrides.load_to_start(file)).unwrap()
}
