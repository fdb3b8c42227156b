//! Domains: two teams on one machine, whose tools see their own dataflows only.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, nervure, output};

/// The two domains of a test, which no other test of this machine uses.
fn domains(test: &str) -> [String; 2] {
    ["r", "b"].map(|team| format!("{test}-{team}-{}", std::process::id()))
}

/// A source of 100 samples a second and a sink, which run until they are stopped.
fn pair(domain: &str, name: &str) -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run_in(domain, &["--name", name]);
    run.line("sink", "in 3");
    run
}

fn in_domain(domain: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = nervure(folder);
    command.args(arguments).args(["--domain", domain]);
    command
}

fn succeeded(command: Command) -> String {
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, Some(0), "{stderr}");
    stdout
}

fn keepers(domain: &str, folder: &Path) -> Vec<i64> {
    let listed = succeeded(in_domain(domain, folder, &["list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let dataflows = listed["dataflows"].as_array().unwrap();
    dataflows
        .iter()
        .map(|one| one["keeper"].as_i64().unwrap())
        .collect()
}

#[test]
fn two_domains_run_a_dataflow_of_the_same_name_and_see_their_own() {
    let [red, blue] = domains("two");
    let name = format!("same-{}", std::process::id());
    let mut runs = [pair(&red, &name), pair(&blue, &name)];
    let own = runs.each_mut().map(|run| {
        let keeper = run.started("sink").parent();
        i64::from(keeper.pid.as_raw_pid())
    });
    let folder = runs.each_ref().map(|run| run.folder().to_owned());

    for (at, domain) in [&red, &blue].into_iter().enumerate() {
        assert_eq!(keepers(domain, &folder[at]), [own[at]]);
        // Each of these would refuse a name that two dataflows have.
        let status = succeeded(in_domain(
            domain,
            &folder[at],
            &["status", "--json", "-d", &name],
        ));
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["keeper"], own[at], "{status}");
        let echo = ["topic", "echo", "source/out", "-n", "1", "-d", &name];
        succeeded(in_domain(domain, &folder[at], &echo));
        let attach = ["attach", "sink", "-d", &name, "--domain", domain];
        let mut attach_command = nervure(&folder[at]);
        attach_command
            .args(attach)
            .args(["--", "sh", "-c", "echo at $NERVURE_DOMAIN"]);
        assert!(succeeded(attach_command).contains(&format!("at {domain}")));
        let logs = format!("logs/@{domain}/{name}");
        assert!(folder[at].join(&logs).is_dir(), "{logs}");
    }
    // The keeper of the other domain is not reached by its id either, nor is one from the default domain.
    for domain in [red.as_str(), ""] {
        let stop = ["stop", "-d", &own[1].to_string()];
        let (code, _, stderr) = output(in_domain(domain, &folder[0], &stop));
        assert_ne!(code, Some(0), "{stderr}");
    }
    assert!(
        !keepers("", &folder[0])
            .iter()
            .any(|keeper| own.contains(keeper))
    );

    succeeded(in_domain(&blue, &folder[1], &["stop", "-d", &name]));
    assert_eq!(keepers(&blue, &folder[1]), [0; 0]);
    assert_eq!(keepers(&red, &folder[0]), [own[0]]);
    let of_last_run = succeeded(in_domain(
        &blue,
        &folder[1],
        &["logs", "--node", "sink", "-d", &name],
    ));
    assert!(of_last_run.contains("in 3"), "{of_last_run}");
}

#[test]
fn a_node_joins_a_dataflow_of_its_domain() {
    let [red, blue] = domains("join");
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .raw(json!({"id": "plot", "path": "dynamic", "inputs": {"in": "source/out"}}))
        .run_in(&red, &[]);
    run.started("source");
    let join = |domain: &str| {
        let program = Path::new(env!("CARGO_BIN_EXE_nervure"));
        let mut command = Command::new(program.with_file_name("examples").join("test_node"));
        command
            .args(["join", "plot", run.name()])
            .env("NERVURE_DOMAIN", domain)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let refused = join(&blue).wait_with_output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains(&format!("in domain `{blue}`")), "{text}");
    let mut plot = join(&red);
    let stdout = BufReader::new(plot.stdout.take().unwrap());
    let joined = stdout.lines().map_while(Result::ok);
    assert!(
        joined
            .into_iter()
            .any(|line| line.starts_with("joined plot "))
    );
    run.signal(Signal::TERM);
    plot.wait().unwrap();
}

#[test]
fn the_name_of_a_domain_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = output(in_domain("a/b", folder.path(), &["list"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("\"a/b\" cannot be the name of a domain"),
        "{stderr}"
    );
    let mut command = nervure(folder.path());
    command.arg("list").env("NERVURE_DOMAIN", "a.b");
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(2), "{stderr}");
    let expected = "error: NERVURE_DOMAIN: \"a.b\" cannot be the name of a domain";
    assert!(stderr.starts_with(expected), "{stderr}");
}

#[test]
fn commands_in_messages_name_the_domain() {
    let [red, _] = domains("hint");
    let dataflow = Dataflow::named().shell("idle", "sleep 1000", json!({}));
    let (file, name) = (dataflow.write(), dataflow.name());
    let mut run = in_domain(&red, dataflow.folder(), &["run", "--detach"]);
    run.arg(&file);
    let told = succeeded(run);
    let stop = format!("nervure stop -d {name} --domain {red}");
    assert!(told.contains(&format!("end it with `{stop}`")), "{told}");
    let mut words = stop.split(' ').skip(1);
    let mut command = nervure(dataflow.folder());
    command.args(&mut words);
    succeeded(command);
}
