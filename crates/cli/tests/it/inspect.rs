//! `nervure list`, `top`, `stop` and `node` on running dataflows.

use std::os::unix::process::CommandExt;

use insta::assert_snapshot;
use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketType},
    process::Signal,
};
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process, Run, nervure, output};

fn command_json(run: &Run, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = output(run.command(arguments));
    assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// A source of 100 samples a second and a sink, which run until they are stopped.
fn pair() -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&[]);
    run.line("sink", "in 3");
    run
}

#[test]
fn a_dataflow_that_runs_is_listed_and_one_that_was_killed_is_not() {
    let mut run = pair();
    let name = run.name().to_owned();
    let listed = |run: &Run| {
        let all = command_json(run, &["list", "--json"]);
        all["dataflows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["dataflow"] == name.as_str())
            .cloned()
    };
    let one = listed(&run).unwrap();
    assert_eq!(
        (&one["state"], &one["nodes"], &one["running"]),
        (&json!("running"), &json!(2), &json!(2))
    );
    let (_, text, _) = output(run.command(&["list"]));
    assert!(text.starts_with("DATAFLOW"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with(&name) && line.contains("  running  ")),
        "{text}"
    );
    let keeper = run.started("sink").parent();
    keeper.signal(Signal::KILL);
    keeper.assert_ends();
    assert!(listed(&run).is_none(), "it is not listed any more");
}

#[test]
fn dataflows_of_other_users_are_mentioned() {
    const UNPRIVILEGED: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let name = format!("theirs-{}", std::process::id());
    // Any process may bind an abstract socket name.
    let address =
        SocketAddrUnix::new_abstract_name(format!("nervure/4242/{name}/1").as_bytes()).unwrap();
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let list = |arguments: &[&str]| {
        let mut command = nervure(folder.path());
        command.arg("list").args(arguments).current_dir("/");
        if rustix::process::geteuid().is_root() {
            // Root may access every dataflow.
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        output(command)
    };
    let (code, _, stderr) = list(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    let expected = [" of other users run", &format!("uid 4242: {name}")];
    assert!(
        expected.iter().all(|part| stderr.contains(part)),
        "{stderr}"
    );
    let (_, stdout, _) = list(&["--json"]);
    let parsed: Value = serde_json::from_str(&stdout).unwrap();
    let others = parsed["of_other_users"].as_array().unwrap();
    assert!(
        others.contains(&json!({"dataflow": name, "keeper": 1, "uid": 4242})),
        "{parsed}"
    );
}

/// Needs root, which can see the dataflows of all users.
#[test]
fn sockets_with_the_name_of_another_user_are_not_listed() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can have a name that is not its own and see it");
    }
    let folder = tempfile::tempdir().unwrap();
    let name = format!("forged-{}", std::process::id());
    let sockets: Vec<_> = (0..200)
        .map(|number| {
            let name = format!("nervure/4242/{name}/{number}");
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
            let kind = SocketType::SEQPACKET;
            let socket = rustix::net::socket(AddressFamily::UNIX, kind, None).unwrap();
            rustix::net::bind(&socket, &address).unwrap();
            rustix::net::listen(&socket, 1).unwrap();
            socket
        })
        .collect();
    let mut command = nervure(folder.path());
    command.args(["list", "--json"]);
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        !stdout.contains(&name) && !stderr.contains(&name),
        "{stdout}"
    );
    drop(sockets);
}

#[test]
fn stop_ends_a_dataflow_in_order_and_waits_for_it() {
    let run = pair();
    let (code, stdout, stderr) = output(run.command(&["stop", "-d", run.name()]));
    assert_eq!(
        (code, stdout),
        (Some(0), format!("{} has stopped\n", run.name())),
        "{stderr}"
    );
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.lines("sink").contains(&"STOP `nervure stop`"),
        "{:?}",
        outcome.lines("sink")
    );
    let own = outcome.lines("nervure");
    assert!(
        own.iter()
            .any(|line| line.starts_with("the dataflow is stopped by `stop@")),
        "{own:?}"
    );
}

#[test]
fn top_shows_nodes_and_edges_from_its_first_measurement() {
    let run = pair();
    let arguments = [
        "top",
        "--json",
        "-n",
        "2",
        "--interval",
        "300ms",
        "-d",
        run.name(),
    ];
    let (code, stdout, stderr) = output(run.command(&arguments));
    assert_eq!(code, Some(0), "{stderr}");
    let looks: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(looks.len(), 2);
    let (node, edge) = (&looks[1]["nodes"][0], &looks[1]["edges"][0]);
    assert_eq!(
        (&node["id"], &node["state"], &node["restarts"]),
        (&json!("source"), &json!("runs"), &json!(0))
    );
    assert!(
        node["resident_bytes"].as_u64() > Some(0) && node["threads"].as_u64() > Some(0),
        "{node}"
    );
    assert_eq!(
        (&edge["topic"], &edge["input"]),
        (&json!("source/out"), &json!("sink/in"))
    );
    assert!(
        edge["rate_hz"].as_f64() > Some(0.0)
            && edge["sent"].as_u64() > looks[0]["edges"][0]["sent"].as_u64()
    );
    let (_, text, _) = output(run.command(&["top", "--interval", "100ms", "-d", run.name()]));
    let shape: Vec<_> = text
        .lines()
        .map(|line| line.split_whitespace().next().unwrap_or(""))
        .collect();
    assert_eq!(
        shape,
        [
            &format!("{}:", run.name()),
            "",
            "NODE",
            "source",
            "sink",
            "",
            "EDGE",
            "source/out"
        ]
    );
}

#[test]
fn counters_go_on_when_a_process_is_started_again() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "doomed-sink 5",
            json!({
                "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
                "restart_policy": "on-failure", "restart_delay": "1ms",
            }),
        )
        .run(&[]);
    run.ended("sink");
    run.line("sink", "in 20");
    let look = command_json(
        &run,
        &[
            "top",
            "--json",
            "-n",
            "1",
            "--interval",
            "100ms",
            "-d",
            run.name(),
        ],
    );
    let edge = &look["edges"][0];
    assert!(
        edge["received"].as_u64() >= Some(20),
        "samples before the restart are counted: {edge}"
    );
    assert!(edge["queued"].as_u64() <= Some(10), "{edge}");
    assert_eq!(look["nodes"][1]["restarts"], 1);
    assert_eq!(
        edge["lost_in_crash"].as_u64().unwrap() + edge["lost"].as_u64().unwrap(),
        2 * edge["lost"].as_u64().unwrap()
    );
}

#[test]
fn a_node_is_stopped_and_started_while_its_neighbour_waits() {
    let mut run = pair();
    let order = |run: &Run, order: &str| {
        let name = format!("{}:source", run.name());
        output(run.command(&["node", order, &name]))
    };
    assert_eq!(order(&run, "stop").1, "node `source` has stopped\n");
    let ended = run.ended("source");
    assert_eq!(
        (&ended["failed"], &ended["restarts"]),
        (&json!(false), &json!(false))
    );
    let (code, _, stderr) = order(&run, "stop");
    assert_eq!(
        (code, &*stderr),
        (Some(2), "error: node `source` does not run\n")
    );
    assert_eq!(order(&run, "start").0, Some(0));
    run.line("sink", "NODE_RESTARTED source");
    run.line("sink", "in 0");
    assert_eq!(order(&run, "restart").0, Some(0));
    run.line("sink", "NODE_RESTARTED source");
    run.line("sink", "in 0");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        !outcome
            .lines("sink")
            .iter()
            .any(|line| line.starts_with("INPUT_CLOSED"))
    );
}

#[test]
fn a_dataflow_that_does_not_run_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = nervure(folder.path());
    command.args(["top", "-d", "sun"]);
    let (code, stdout, stderr) = output(command);
    // Other dataflows may run on this machine.
    let none_runs = code == Some(1) && stderr.starts_with("error: no dataflow runs\n");
    let others_run =
        code == Some(2) && stderr.starts_with("error: no dataflow `sun` runs; these do: ");
    assert!(stdout.is_empty() && (none_runs || others_run), "{stderr}");
    let run = pair();
    let (code, _, stderr) = output(run.command(&["node", "stop", "sun", "-d", run.name()]));
    assert_eq!(code, Some(2));
    assert_snapshot!(stderr, @r"
    error: there is no node `sun`

    hint: its nodes are source, sink
    ");
    for (command, near) in [
        (&["node", "restart", "suorce"][..], "source"),
        (&["attach", "suorce"], "source"),
        (&["param", "list", "suorce"], "source"),
        (&["topic", "info", "suorce/out"], "source/out"),
        (&["record", "suorce/out"], "source/out"),
    ] {
        let (code, _, stderr) = output(run.command(&[command, &["-d", run.name()]].concat()));
        assert_eq!(code, Some(2), "{command:?}");
        assert!(
            stderr.ends_with(&format!("\nhint: did you mean `{near}`?\n")),
            "{command:?}: {stderr}"
        );
    }
}

/// A node that sends a value of each kind, without a consumer of the image.
fn values() -> Run {
    let mut run = Dataflow::named()
        .node("source", "values", json!({"outputs": {
            "image": {"type": "std/Image@1"}, "text": {}, "number": {}, "map": {}, "list": {}, "bytes": {}, "vector": {"history": 3},
        }}))
        .node("sink", "idle", json!({"inputs": {"text": "source/text"}}))
        .run(&[]);
    run.line("sink", "ready");
    run
}

/// The output of a command, with the name of the run, process ids and column widths redacted.
fn redacted(run: &Run, arguments: &[&str]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.extend(["-d", run.name()]);
    let (code, stdout, stderr) = output(run.command(&arguments));
    let text = format!(
        "exit code: {}\n{stdout}----- stderr -----\n{stderr}",
        code.unwrap()
    );
    let text = text.replace(run.name(), "[name]");
    let (_, status, _) = output(run.command(&["status", "--json", "-d", run.name()]));
    let status: Value = serde_json::from_str(&status).unwrap();
    let pids: Vec<String> = status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["pid"].to_string())
        .collect();
    let word = |word: &str| {
        let bare = word.trim_end_matches(')');
        let is_pid = pids.iter().any(|pid| pid == bare);
        if is_pid {
            word.replace(bare, "[pid]")
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| {
        let indentation = &line[..line.len() - line.trim_start().len()];
        format!(
            "{indentation}{}",
            line.split_whitespace()
                .map(word)
                .collect::<Vec<_>>()
                .join(" ")
        )
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn topics_are_listed_and_described() {
    let run = values();
    assert_snapshot!(redacted(&run, &["topic", "list"]));
    assert_snapshot!(redacted(&run, &["topic", "info", "source/image"]));
    let info = command_json(
        &run,
        &["topic", "info", "source/text", "--json", "-d", run.name()],
    );
    assert_eq!(
        (&info["producer"]["id"], &info["edges"][0]["input"]),
        (&json!("source"), &json!("sink/text"))
    );
    assert_snapshot!(redacted(&run, &["topic", "info", "source/imgae"]));
    assert_snapshot!(redacted(&run, &["topic", "info", "none/here"]));
}

#[test]
fn a_struct_with_a_tensor_arrives_as_one_and_is_shown() {
    let mut run = Dataflow::named()
        .node("source", "frames", json!({"outputs": ["frame"]}))
        .node(
            "sink",
            "frame-sink",
            json!({"inputs": {"frame": "source/frame"}}),
        )
        .run(&[]);
    run.line("sink", "1.5 [20, 30, 3] 18000 [\"cup\"] true");
    let arguments = [
        "topic",
        "echo",
        "source/frame",
        "-n",
        "1",
        "--json",
        "-d",
        run.name(),
    ];
    let shown = command_json(&run, &arguments)["value"].take();
    let image =
        json!({"shape": [20, 30, 3], "dtype": "uint8", "min": 10.0, "max": 10.0, "mean": 10.0});
    assert_eq!(
        shown,
        json!({"stamp": 1.5, "image": image, "labels": ["cup"]})
    );
}

#[test]
fn echo_shows_every_kind_of_value() {
    let run = values();
    let echo = |topic: &str| {
        let arguments = [
            "topic",
            "echo",
            topic,
            "-n",
            "1",
            "--json",
            "-d",
            run.name(),
        ];
        let mut sample = command_json(&run, &arguments);
        let object = sample.as_object_mut().unwrap();
        for changing in [
            "sequence",
            "stamp_utc_nanos",
            "age_nanos",
            "latency_nanos",
            "missed",
        ] {
            assert!(object.remove(changing).unwrap().is_i64(), "{changing}");
        }
        sample
    };
    let image = json!({"shape": [20, 30, 3], "dtype": "uint8", "min": 10.0, "max": 250.0, "mean": 10.0 + 240.0 / 1800.0});
    let expected = json!({
        "topic": "source/image", "incarnation": 0, "bytes": 1800, "frame": "camera_optical",
        "metadata": {"encoding": "bgr8"}, "value": image,
    });
    let mut found = echo("source/image");
    let mean = found["value"]["mean"].take().as_f64().unwrap();
    assert!((mean - 10.1333).abs() < 1e-3);
    found["value"]["mean"] = expected["value"]["mean"].clone();
    assert_eq!(found, expected);
    assert_eq!(echo("source/text")["value"], "caf\u{e9}");
    assert_eq!(echo("source/number")["value"], 1.5);
    assert_eq!(
        echo("source/map")["value"],
        json!({"x": 12, "labels": ["cup"]})
    );
    assert_eq!(echo("source/list")["value"], json!([{"x": 12}]));
    assert_eq!(
        echo("source/bytes")["value"],
        json!({"bytes": 3, "begin_hex": "010203"})
    );
    assert_eq!(
        echo("source/vector")["value"]["begin"],
        json!([0.5, -1.0, 2.0])
    );
    let (code, text, _) =
        output(run.command(&["topic", "echo", "*/image", "-n", "1", "-d", run.name()]));
    let lines: Vec<_> = text.lines().collect();
    assert!(
        code == Some(0)
            && lines[0].starts_with("source/image #")
            && lines[0].ends_with("frame camera_optical"),
        "{text}"
    );
    assert_eq!(
        lines[1..],
        [
            "  uint8 20x30x3, min 10, max 250, mean 10.1333",
            "  encoding: \"bgr8\""
        ]
    );
}

#[test]
fn samples_are_saved_in_the_format_of_their_type() {
    let run = values();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for (topic, extension, begin) in [
        ("source/image", "png", &b"\x89PNG"[..]),
        ("source/vector", "npy", b"\x93NUMPY"),
        ("source/text", "json", b"{\"age_nanos"),
    ] {
        let (code, _, stderr) = output(run.command(&[
            "topic",
            "echo",
            topic,
            "-n",
            "1",
            "--save",
            path,
            "-d",
            run.name(),
        ]));
        assert_eq!(code, Some(0), "{stderr}");
        let written = stderr.trim().strip_prefix("wrote ").unwrap();
        assert!(written.ends_with(extension), "{written}");
        assert!(
            std::fs::read(written).unwrap().starts_with(begin),
            "{written}"
        );
    }
}

#[test]
fn rates_bytes_and_delays_are_measured() {
    let run = pair();
    let measure = |what: &str| {
        command_json(
            &run,
            &[
                "topic",
                what,
                "source/*",
                "-n",
                "1",
                "--interval",
                "500ms",
                "--json",
                "-d",
                run.name(),
            ],
        )
    };
    let rate = measure("hz");
    assert!(
        rate["rate_hz"].as_f64() > Some(0.0)
            && rate["interval_nanos"]["mean"].as_f64() >= Some(10e6),
        "{rate}"
    );
    assert_eq!(measure("bw")["bytes"]["max"], 8.0);
    let (_, text, _) =
        output(run.command(&["topic", "bw", "source/out", "-n", "1", "-d", run.name()]));
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    // 8 bytes, a hundred times a second at most.
    assert!(
        text.starts_with("TOPIC") && text.contains("BANDWIDTH") && row[2] == "B/s",
        "{text}"
    );
    let delay = measure("delay");
    assert!(
        delay["latency_nanos"]["min"].as_f64() > Some(0.0),
        "{delay}"
    );
    assert!(
        delay["age_nanos"]["max"].as_f64() >= delay["latency_nanos"]["min"].as_f64(),
        "{delay}"
    );
    let (_, text, _) =
        output(run.command(&["topic", "hz", "source/out", "-n", "1", "-d", run.name()]));
    assert!(
        text.starts_with("TOPIC") && text.lines().nth(1).unwrap().starts_with("source/out"),
        "{text}"
    );
}

#[test]
fn losses_are_explained_and_holders_named() {
    let mut run = Dataflow::named()
        .node(
            "source",
            "source 100 0",
            json!({"outputs": {"out": {"history": 1}}}),
        )
        .node(
            "slow",
            "deaf",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 5}}}),
        )
        .run(&[]);
    run.ended("source");
    let explained = redacted(&run, &["explain", "source/out"]);
    let (begin, rest) = explained
        .split_once("took nothing for ")
        .expect("the consumer takes nothing");
    let (_, end) = rest.split_once(" s;").unwrap();
    assert_snapshot!(format!("{begin}took nothing for [time] s;{end}"));
    assert_snapshot!(redacted(&run, &["holders"]));
    assert_snapshot!(redacted(&run, &["explain", "source/nothing"]));
    let explained = command_json(&run, &["explain", "--json", "-d", run.name()]);
    assert_eq!(
        (
            &explained["edges"][0]["lost"],
            &explained["edges"][0]["causes"][0]["count"]
        ),
        (&json!(95), &json!(95))
    );
}

#[test]
fn status_shows_failures_of_nodes() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "failing-sink 3",
            json!({"inputs": {"in": "source/out"}}),
        )
        .run(&[]);
    run.ended("sink");
    let (code, text, _) = output(run.command(&["status", "-d", run.name()]));
    assert_eq!(code, Some(0));
    assert!(
        text.contains("node `sink`: exited with code 1\n    Error: \"as requested\"\n"),
        "{text}"
    );
    let status = command_json(&run, &["status", "--json", "-d", run.name()]);
    assert_eq!(
        (
            &status["nodes"][1]["state"],
            &status["nodes"][1]["last_end"]["code"]
        ),
        (&json!("failed"), &json!(1))
    );
}

#[test]
fn status_names_the_node_that_delays_the_start() {
    let mut run = Dataflow::named()
        .shell(
            "dreamer",
            "echo dreams; sleep 1000",
            json!({"outputs": ["out"]}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "dreamer/out"}}))
        .run(&[]);
    run.line("dreamer", "dreams");
    let (code, text, _) = output(run.command(&["status", "-d", run.name()]));
    assert_eq!(code, Some(0));
    assert!(
        text.contains("\nnode `dreamer` has not connected: the dataflow waits for it\n"),
        "{text}"
    );
    let look = command_json(
        &run,
        &[
            "top",
            "--json",
            "-n",
            "1",
            "--interval",
            "10ms",
            "-d",
            run.name(),
        ],
    );
    assert_eq!(look["nodes"][0]["state"], "starts", "{look}");
    run.signal(Signal::INT);
}

#[test]
fn logs_are_filtered_and_outlive_their_run() {
    let mut run = Dataflow::named()
        .shell(
            "talk",
            "echo one; echo WARN: two >&2; echo ERROR: three",
            json!({}),
        )
        .shell("idle", "echo up; sleep 1000", json!({}))
        .shell("silent", "sleep 1000", json!({}))
        .run(&[]);
    run.ended("talk");
    let texts = |run: &Run, arguments: &[&str]| {
        let mut all = vec!["logs", "--json", "-d", run.name()];
        all.extend(arguments);
        let (code, stdout, stderr) = output(run.command(&all));
        assert_eq!(code, Some(0), "{stderr}");
        let record = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["text"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        stdout.lines().map(record).collect::<Vec<_>>()
    };
    let three = ["--node", "talk", "--level", "warn"];
    let mut sorted = texts(&run, &three);
    sorted.sort();
    assert_eq!(sorted, ["ERROR: three", "WARN: two"]);
    assert_eq!(texts(&run, &["--grep", "one"]), ["one"]);
    assert_eq!(texts(&run, &["--grep", "^(?i)O.e$"]), ["one"]);
    assert!(texts(&run, &["--since", "1h"]).len() >= 4);
    let (_, text, _) = output(run.command(&["logs", "--grep", "two", "-d", run.name()]));
    assert!(text.ends_with(" talk       | WARN: two\n"), "{text}");
    let misspelt = |run: &Run| {
        let (code, _, stderr) = output(run.command(&["logs", "--node", "idel", "-d", run.name()]));
        assert_eq!(code, Some(2), "{stderr}");
        assert!(
            stderr.contains("there is no node `idel`") && stderr.contains("did you mean `idle`?"),
            "{stderr}"
        );
    };
    misspelt(&run);
    assert!(
        texts(&run, &["--node", "silent"]).is_empty(),
        "a node without output is no error"
    );
    assert!(texts(&run, &["--node", "nervure"]).len() <= texts(&run, &[]).len());
    output(run.command(&["stop", "-d", run.name()]));
    let after = texts(&run, &["--grep", "up"]);
    assert_eq!(after, ["up"]);
    misspelt(&run);
    run.signal(Signal::INT);
}

#[test]
fn logs_are_followed_until_the_end() {
    let mut run = Dataflow::named()
        .shell(
            "talk",
            "mkfifo pipe; echo first; read line < pipe; echo last",
            json!({}),
        )
        .shell("idle", "sleep 1000", json!({}))
        .run(&[]);
    run.line("talk", "first");
    let mut command = run.command(&["logs", "-f", "--node", "talk", "-d", run.name()]);
    let mut follower = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    let mut until = |text: &str| while !lines.next().expect("a line").unwrap().ends_with(text) {};
    until("| first");
    std::fs::write(run.folder().join("pipe"), "go\n").unwrap();
    until("| last");
    run.signal(Signal::INT);
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_detached_dataflow_outlives_its_run_and_its_end_leaves_nothing() {
    let dataflow = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}));
    let file = dataflow.write();
    let name = dataflow.name().to_owned();
    let (code, stdout, stderr) = output({
        let mut command = dataflow.command(&["run", "--detach"]);
        command.arg(&file);
        command
    });
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains(&format!("{name} runs in the background (keeper ")),
        "{stdout}"
    );
    let status = |dataflow: &Dataflow| -> Value {
        let (code, stdout, stderr) = output(dataflow.command(&["status", "--json", "-d", &name]));
        assert_eq!(code, Some(0), "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    };
    let parsed = status(&dataflow);
    assert_eq!(
        (&parsed["detached"], &parsed["state"]),
        (&json!(true), &json!("running"))
    );
    let pids = parsed["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["pid"].as_i64().unwrap());
    let mut processes: Vec<_> = pids.map(Process::new).collect();
    processes.push(Process::new(parsed["keeper"].as_i64().unwrap()));
    let (code, ..) = output(dataflow.command(&["stop", "-d", &name]));
    assert_eq!(code, Some(0));
    processes.iter().for_each(Process::assert_ends);
}

#[test]
fn dataflows_with_the_same_name_are_selected_by_keeper() {
    let dataflow = Dataflow::named().shell("idle", "sleep 1000", json!({}));
    let (file, name) = (dataflow.write(), dataflow.name().to_owned());
    let copy = tempfile::tempdir().unwrap();
    let copied = copy.path().join(file.file_name().unwrap());
    std::fs::copy(&file, &copied).unwrap();
    let detach = |file| {
        let mut command = dataflow.command(&["run", "--detach"]);
        let (code, stdout, stderr) = output({
            command.arg(file);
            command
        });
        assert_eq!(code, Some(0), "{stderr}");
        let keeper = stdout
            .split_once("(keeper ")
            .unwrap()
            .1
            .split_once(')')
            .unwrap()
            .0
            .to_owned();
        (keeper, stdout)
    };
    let stop =
        |keeper: &str| assert_eq!(output(dataflow.command(&["stop", "-d", keeper])).0, Some(0));
    let (first, stdout) = detach(&file);
    assert!(
        stdout.ends_with(&format!("end it with `nervure stop -d {name}`\n")),
        "{stdout}"
    );
    let (second, stdout) = detach(&copied);
    stop(&second);
    assert!(
        stdout.ends_with(&format!("end it with `nervure stop -d {second}`\n")),
        "{stdout}"
    );
    stop(&first);
}

#[test]
fn later_runs_do_not_remove_the_logs_of_a_detached_one() {
    let detached = Dataflow::named().shell("idle", "echo up; sleep 1000", json!({}));
    let short = Dataflow::new().shell("short", "true", json!({}));
    let name = detached.name().to_owned();
    let (code, _, stderr) = output({
        let mut command = detached.command(&["run", "--detach"]);
        command.arg(detached.write());
        command
    });
    assert_eq!(code, Some(0), "{stderr}");
    let (_, status, _) = output(detached.command(&["status", "--json", "-d", &name]));
    let status: Value = serde_json::from_str(&status).unwrap();
    let file = short.write();
    for _ in 0..21 {
        let mut command = detached.command(&["run", "--name", &name]);
        let (code, _, stderr) = output({
            command.arg(&file);
            command
        });
        assert_eq!(code, Some(0), "{stderr}");
    }
    let folder = std::path::Path::new(status["log_folder"].as_str().unwrap());
    assert!(folder.exists());
    assert_eq!(output(detached.command(&["stop", "-d", &name])).0, Some(0));
}

#[test]
fn a_detached_dataflow_that_fails_at_once_is_reported() {
    let dataflow = Dataflow::named().node("deaf", "no-such-mode", json!({"outputs": ["out"]}));
    let file = dataflow.write();
    let mut command = dataflow.command(&["run", "--detach"]);
    command.arg(&file);
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(
        stderr.contains("node `deaf` failed") || stderr.contains("deaf: exited with code 1"),
        "{stderr}"
    );

    // A node that fails just after the dataflow is ready, beside one that continues.
    let late = "echo starts; sleep 0.1; echo the reason >&2; exit 5";
    let dataflow =
        Dataflow::named()
            .shell("late", late, json!({}))
            .shell("idle", "sleep 1000", json!({}));
    let mut command = dataflow.command(&["run", "--detach", "--log-level", "error"]);
    command.arg(dataflow.write());
    let (code, stdout, stderr) = output(command);
    let (stopped, ..) = output(dataflow.command(&["stop", "-d", dataflow.name()]));
    assert_eq!((code, stopped), (Some(3), Some(0)), "{stdout}{stderr}");
    assert!(
        stderr.contains("node `late` failed: exited with code 5\n    the reason\n"),
        "{stderr}"
    );
}

#[test]
fn echo_shows_one_field_of_each_sample() {
    let run = values();
    let echo = |topic: &str, field: &str| {
        let arguments = ["topic", "echo", topic, "-n", "1", "--field", field, "-d"];
        output(run.command(&[&arguments[..], &[run.name()]].concat()))
    };
    for (topic, field, expected) in [
        ("source/map", "x", "12\n"),
        ("source/map", "labels", "[\"cup\"]\n"),
        ("source/map", "labels[0]", "\"cup\"\n"),
        ("source/map", "labels[1]", "null\n"),
        ("source/list", "[0].x", "12\n"),
        ("source/vector", "[1]", "-1.0\n"),
        ("source/vector", "[7]", "null\n"),
        ("source/image", "[0][0][0]", "250\n"),
    ] {
        let (code, stdout, stderr) = echo(topic, field);
        assert_eq!((code, &*stdout), (Some(0), expected), "{field}: {stderr}");
    }
    for (topic, field, error, hint) in [
        (
            "source/map",
            "label",
            "the sample has no field `label`",
            "did you mean `labels`? its fields: labels, x",
        ),
        (
            "source/map",
            "x.y",
            "`x` is an integer, which has no fields",
            "",
        ),
        (
            "source/number",
            "x",
            "the sample is a scalar, which has no fields",
            "",
        ),
        (
            "source/image",
            "[0]",
            "write an index for each dimension",
            "",
        ),
        ("source/map", "labels[]", "an index is missing", ""),
        ("source/map", "a..b", "a name is empty", ""),
    ] {
        let (code, _, stderr) = echo(topic, field);
        assert!(
            code != Some(0) && stderr.contains(error) && stderr.contains(hint),
            "{field}: {stderr}"
        );
    }
    let arguments = [
        "topic",
        "echo",
        "source/map",
        "-n",
        "1",
        "--json",
        "--field",
        "x",
        "-d",
        run.name(),
    ];
    let shown = command_json(&run, &arguments);
    assert_eq!(
        (&shown["topic"], &shown["value"]),
        (&json!("source/map"), &json!(12))
    );
}
