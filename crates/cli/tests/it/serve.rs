//! `nervure serve`, with a client that speaks HTTP/1.1 by hand.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, WAIT_LIMIT, output};

/// `nervure serve` on a free port.
pub struct Server {
    child: Child,
    pub address: String,
    /// Header with the token.
    pub authorization: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Server {
    /// Starts a command that begins with `serve`.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let after = |line: String, begin: &str| Some(line.split_once(begin)?.1.to_owned());
        let token = lines.find_map(|line| after(line, "the token of requests is in "));
        let token = std::fs::read_to_string(token.expect("it says where the token is")).unwrap();
        let address = lines.find_map(|line| after(line, "://"));
        let address = address.expect("it says where it serves");
        // A closed stderr would not disturb it, but its output may explain a failure.
        std::thread::spawn(move || {
            for line in lines {
                eprintln!("serve: {line}");
            }
        });
        Self {
            child,
            address: address.split_once('/').unwrap().0.to_owned(),
            authorization: format!("Authorization: Bearer {}", token.trim()),
        }
    }

    /// Sends the bytes, and returns all that comes back until the connection ends.
    fn exchange(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        // The server may have closed the connection before it has read all.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    pub fn request(&self, method: &str, path: &str, headers: &str) -> Answer {
        let text = self.exchange(
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").as_bytes(),
        );
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// Asks for a path below `/v1`, with the token. The answer is JSON.
    pub fn api(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let headers = format!(
            "Host: localhost\r\n{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.authorization,
            body.len()
        );
        let answer = self.request(method, &format!("/v1{path}"), &headers);
        assert!(
            answer.head.contains("content-type: application/json"),
            "{answer:?}"
        );
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, answer) = self.api("GET", path, None);
        assert_eq!(status, 200, "{path}: {answer:#}");
        answer
    }

    /// The metrics by name and labels.
    pub fn metrics(&self) -> Metrics {
        let answer = self.request("GET", "/metrics", "Host: localhost\r\n");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer
                .head
                .contains("content-type: text/plain; version=0.0.4"),
            "{answer:?}"
        );
        Metrics::parse(&answer.body)
    }
}

impl Server {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Metrics in the text format of Prometheus.
#[derive(Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn parse(text: &str) -> Self {
        let mut types = BTreeMap::new();
        let mut values = BTreeMap::new();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').unwrap();
                assert!(types.insert(name, kind).is_none(), "{name} twice");
            } else if !line.starts_with('#') {
                let (metric, value) = line.rsplit_once(' ').unwrap();
                let name = metric.split('{').next().unwrap();
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .filter(|family| types.get(family) == Some(&"histogram"))
                    .unwrap_or(name);
                assert_eq!(
                    types[family] == "counter",
                    family.ends_with("_total"),
                    "{line}"
                );
                let value = value.parse().unwrap();
                assert!(
                    values.insert(metric.to_owned(), value).is_none(),
                    "{metric} twice"
                );
            }
        }
        Self(values)
    }

    /// The value of a metric with these labels, in this order.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        self.0.get(&format!("{name}{labels}")).copied()
    }

    fn has_dataflow(&self, dataflow: &str) -> bool {
        let label = format!("dataflow=\"{dataflow}\"");
        self.0.keys().any(|metric| metric.contains(&label))
    }
}

pub fn server(run: &Run) -> Server {
    let mut command = run.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("NERVURE_STATE", run.folder());
    Server::start(command)
}

/// 50 samples for a consumer that takes all, and for one that takes none.
pub fn losing() -> Run {
    losing_dataflow().run(&["--grace", "100ms"])
}

pub fn losing_dataflow() -> Dataflow {
    Dataflow::named()
        .node("source", "source 50 2 99", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 60}}}),
        )
        .node(
            "deaf",
            "deaf",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 10}}}),
        )
}

fn top(run: &Run) -> Value {
    let arguments = [
        "top",
        "-d",
        run.name(),
        "--json",
        "-n",
        "1",
        "--interval",
        "100ms",
    ];
    let (code, stdout, stderr) = output(run.command(&arguments));
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn metrics_are_those_of_top() {
    let mut run = losing();
    run.line("sink", "in 49");
    let server = server(&run);
    let dataflow = run.name().to_owned();
    // All samples of the source are counted when it has ended, and nothing changes from then on.
    let ended = [
        ("dataflow", dataflow.as_str()),
        ("node", "source"),
        ("state", "ended"),
    ];
    let until = Instant::now() + WAIT_LIMIT;
    let metrics = loop {
        let metrics = server.metrics();
        if metrics.value("nervure_node_state", &ended).is_some() {
            break metrics;
        }
        assert!(Instant::now() < until, "the source ends");
    };
    let top = top(&run);
    let of_dataflow = [("dataflow", dataflow.as_str())];
    assert_eq!(
        metrics.value("nervure_dataflow_up", &of_dataflow),
        Some(1.0)
    );
    assert_eq!(
        metrics.value(
            "nervure_dataflow_state",
            &[of_dataflow[0], ("state", "running")]
        ),
        Some(1.0)
    );
    let edges = top["edges"].as_array().unwrap();
    assert_eq!(edges.len(), 2, "{top:#}");
    for edge in edges {
        let labels = [
            of_dataflow[0],
            ("topic", edge["topic"].as_str().unwrap()),
            ("input", edge["input"].as_str().unwrap()),
        ];
        for (name, field) in [
            ("nervure_edge_published_samples_total", "sent"),
            ("nervure_edge_received_samples_total", "received"),
            ("nervure_edge_received_bytes_total", "received_bytes"),
            ("nervure_edge_undelivered_samples_total", "undelivered"),
            ("nervure_edge_queued_samples", "queued"),
            ("nervure_edge_held_samples", "held"),
            ("nervure_edge_stale_total", "stale"),
            ("nervure_edge_latency_seconds_count", "received"),
        ] {
            assert_eq!(
                metrics.value(name, &labels),
                edge[field].as_f64(),
                "{name}: {edge:#}"
            );
        }
        let mut lost = 0.0;
        for cause in [
            "dropped_oldest",
            "dropped_newest",
            "missed_held",
            "missed_memory",
            "missed_control",
            "missed_away",
            "dropped_away",
            "lost_in_crash",
            "lost_with_producer",
        ] {
            let labels = [&labels[..], &[("cause", cause)]].concat();
            let counted = metrics.value("nervure_edge_lost_samples_total", &labels);
            assert_eq!(counted, edge[cause].as_f64(), "{cause}: {edge:#}");
            lost += counted.unwrap();
        }
        assert_eq!(Some(lost), edge["lost"].as_f64(), "{edge:#}");
        let infinity = [&labels[..], &[("le", "+Inf")]].concat();
        assert_eq!(
            metrics.value("nervure_edge_latency_seconds_bucket", &infinity),
            edge["received"].as_f64()
        );
    }
    let lost: Vec<_> = edges
        .iter()
        .map(|edge| edge["lost"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (lost.iter().min(), lost.iter().max()),
        (Some(&0), Some(&40))
    );
    for node in top["nodes"].as_array().unwrap() {
        let labels = [of_dataflow[0], ("node", node["id"].as_str().unwrap())];
        let state = [&labels[..], &[("state", node["state"].as_str().unwrap())]].concat();
        assert_eq!(metrics.value("nervure_node_state", &state), Some(1.0));
        assert_eq!(
            metrics.value("nervure_node_restarts_total", &labels),
            Some(0.0)
        );
        let memory = metrics.value("nervure_node_resident_memory_bytes", &labels);
        let cpu = metrics.value("nervure_node_cpu_seconds_total", &labels);
        let threads = metrics.value("nervure_node_threads", &labels);
        match node["pid"].is_null() {
            true => assert_eq!((memory, cpu, threads), (None, None, None)),
            false => {
                assert!(memory.unwrap() > 1e5 && cpu.is_some());
                assert_eq!(threads, node["threads"].as_f64());
            }
        }
    }
}

#[test]
fn a_dataflow_that_has_ended_has_no_metrics() {
    let run = losing();
    let server = server(&run);
    let dataflow = run.name().to_owned();
    let until = Instant::now() + WAIT_LIMIT;
    while !server.metrics().has_dataflow(&dataflow) {
        assert!(Instant::now() < until, "it runs");
    }
    let (code, _, stderr) = output(run.command(&["stop", "-d", &dataflow]));
    assert_eq!(code, Some(0), "{stderr}");
    while server.metrics().has_dataflow(&dataflow) {
        assert!(Instant::now() < until, "it has ended");
    }
}

#[test]
fn what_does_not_belong_here_is_refused() {
    let run = Dataflow::named().node("idle", "idle", json!({})).run(&[]);
    let server = server(&run);
    let error = |answer: &Answer| -> Value {
        assert!(
            answer.head.contains("content-type: application/json"),
            "{answer:?}"
        );
        serde_json::from_str::<Value>(&answer.body).unwrap()["error"].clone()
    };
    for host in [
        "",
        "Host: evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
    ] {
        let answer = server.request("GET", "/metrics", host);
        assert_eq!(answer.status, 421, "{host:?}: {answer:?}");
        assert!(
            error(&answer)["hint"]
                .as_str()
                .unwrap()
                .contains("--host NAME")
        );
    }
    for path in ["/v1/dataflows", "/v1/openapi.json", "/nothing"] {
        let answer = server.request("GET", path, "Host: 127.0.0.1\r\n");
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(
            answer.head.contains("www-authenticate: bearer"),
            "{answer:?}"
        );
        error(&answer);
    }
    let authorized = format!("Host: 127.0.0.1\r\n{}\r\n", server.authorization);
    let answer = server.request("GET", "/nothing", &authorized);
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(error(&answer)["message"], "there is no such path");
    let answer = server.request("POST", "/metrics", "Host: 127.0.0.1\r\n");
    assert_eq!(answer.status, 405, "{answer:?}");
    error(&answer);
    for garbage in [
        &b"\0\xff\n\n"[..],
        b"GET / HTTP/9\r\n\r\n",
        &[b'a'; 100_000],
    ] {
        let answer = server.exchange(garbage);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    let long = format!("Host: localhost\r\nX: {}\r\n", "x".repeat(100_000));
    assert_eq!(server.request("GET", "/metrics", &long).status, 431);
    // The server still answers.
    server.metrics();
}

#[test]
fn connections_without_the_token_keep_none_out() {
    let run = quiet();
    let server = server(&run);
    // A connection that has sent the token, and stays.
    let mut kept = TcpStream::connect(&server.address).unwrap();
    kept.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let request = format!(
        "GET /v1/dataflows HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n",
        server.authorization
    );
    let mut ask = || {
        kept.write_all(request.as_bytes()).unwrap();
        let mut begin = [0; 4096];
        let bytes = kept.read(&mut begin).unwrap();
        assert!(begin[..bytes].starts_with(b"HTTP/1.1 200 OK"));
    };
    ask();
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    server.get("/dataflows");
    server.metrics();
    ask();
    drop(silent);
}

#[test]
fn off_the_loopback_a_certificate_is_needed_and_the_token() {
    let dataflow = Dataflow::named();
    let (code, _, stderr) = output(dataflow.command(&["serve", "--listen", "0.0.0.0:0"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("reachable from other machines") && stderr.contains("hint: "),
        "{stderr}"
    );
    let folder = dataflow.folder();
    let openssl = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=test",
        ])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(folder)
        .output();
    if !openssl.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: no openssl that makes certificates");
        return;
    }
    let arguments = [
        "serve",
        "--listen",
        "0.0.0.0:0",
        "--certificate",
        "certificate.pem",
        "--key",
        "key.pem",
    ];
    let mut command = dataflow.command(&arguments);
    command.env("NERVURE_STATE", folder);
    let server = Server::start(command);
    let port = server.address.rsplit_once(':').unwrap().1;
    let url = format!("https://127.0.0.1:{port}/metrics");
    let curl = |headers: &[&str]| {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--noproxy", "*", "--cacert", "certificate.pem"])
            .args(["--write-out", "%{http_code}", &url])
            .current_dir(folder);
        for header in headers {
            command.args(["--header", header]);
        }
        output(command)
    };
    let (code, stdout, stderr) = curl(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.ends_with("401") && !stdout.contains("nervure_build_info"),
        "{stdout}"
    );
    let (_, stdout, stderr) = curl(&[&server.authorization]);
    assert!(
        stdout.ends_with("200") && stdout.contains("nervure_build_info"),
        "{stdout}{stderr}"
    );
    // No HTTP there.
    assert!(
        !server
            .exchange(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .contains("200")
    );
}

pub fn command_json(run: &Run, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = output(run.command(arguments));
    assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// A source and a sink that end, and an idle node with a parameter: nothing changes then.
fn quiet() -> Run {
    let params = json!({"params": {"speed": {"value": 2, "max": 9}}});
    let sink = json!({"inputs": {"in": {"source": "source/out", "queue_size": 10}}});
    let mut run = Dataflow::named()
        .node("source", "source 5 0", json!({"outputs": ["out"]}))
        .node("sink", "sink", sink)
        .node("idle", "idle", params)
        .run(&[]);
    run.line("idle", "ready");
    let (name, until) = (run.name().to_owned(), Instant::now() + WAIT_LIMIT);
    loop {
        let status = command_json(&run, &["status", "-d", &name, "--json"]);
        if status["nodes"][1]["state"] == "ended" {
            return run;
        }
        assert!(Instant::now() < until, "the sink ends: {status:#}");
    }
}

#[test]
fn answers_are_those_of_the_commands() {
    let run = quiet();
    let server = server(&run);
    let name = run.name().to_owned();
    let of_dataflow = format!("/dataflows/{name}");
    for (path, command) in [
        ("", ["status", ""]),
        ("/topics", ["topic", "list"]),
        ("/params", ["param", "list"]),
        ("/holders?topics=source/out", ["holders", "source/out"]),
        ("/explain?topics=source/*", ["explain", ""]),
    ] {
        let words = command.iter().filter(|word| !word.is_empty()).copied();
        let arguments: Vec<_> = words.chain(["-d", &name, "--json"]).collect();
        let expected = command_json(&run, &arguments);
        assert_eq!(server.get(&format!("{of_dataflow}{path}")), expected);
    }
    let find = |list: Value| {
        let rows = list["dataflows"].as_array().unwrap().clone();
        rows.into_iter()
            .find(|row| row["dataflow"] == name.as_str())
    };
    let listed = find(server.get("/dataflows")).unwrap();
    assert_eq!(Some(listed), find(command_json(&run, &["list", "--json"])));

    let (load, top) = (
        server.get(&format!("{of_dataflow}/load?interval_millis=100")),
        top(&run),
    );
    assert_eq!(load["edges"], top["edges"]);
    let ids = |load: &Value| {
        load["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&load), ids(&top));

    let info = server.get(&format!("{of_dataflow}/topics/info?topics=source/out"));
    let expected = command_json(
        &run,
        &["topic", "info", "source/out", "-d", &name, "--json"],
    );
    assert_eq!(info["topics"], json!([expected]));

    let logs = server.get(&format!(
        "{of_dataflow}/logs?node=sink&pattern=%5Ein%20%5B34%5D&most=1"
    ));
    let texts = |logs: &Value| {
        logs["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["text"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (texts(&logs), &logs["omitted"]),
        (vec!["in 4".to_owned()], &json!(1))
    );
    assert_eq!(logs["dataflow"], name.as_str());
    let none = server.get(&format!("{of_dataflow}/logs?level=error"));
    assert_eq!(none["records"], json!([]), "{none:#}");
}

#[test]
fn errors_have_a_status_and_the_form_of_the_commands() {
    let run = quiet();
    let server = server(&run);
    let name = run.name().to_owned();
    for (method, path, body, status, text) in [
        (
            "GET",
            "/dataflows/nope".to_owned(),
            None,
            404,
            "no dataflow `nope`",
        ),
        (
            "GET",
            format!("/dataflows/{name}/logs?node=nope"),
            None,
            404,
            "no node `nope`",
        ),
        (
            "GET",
            format!("/dataflows/{name}/logs?pattern=%28"),
            None,
            400,
            "no regular expression",
        ),
        (
            "GET",
            format!("/dataflows/{name}/logs?most=many"),
            None,
            400,
            "malformed",
        ),
        (
            "GET",
            format!("/dataflows/{name}/load?interval_millis=-1"),
            None,
            400,
            "malformed",
        ),
        (
            "GET",
            format!("/dataflows/{name}/explain?topics=source/uot"),
            None,
            400,
            "did you mean `source/out`",
        ),
        (
            "GET",
            format!("/dataflows/{name}/samples?topics=nope"),
            None,
            400,
            "no topic `nope`",
        ),
        (
            "GET",
            "/dataflows/nope/logs/follow".to_owned(),
            None,
            404,
            "no dataflow `nope`",
        ),
        (
            "POST",
            format!("/dataflows/{name}/recordings"),
            Some(json!({"file": "here.mcap"})),
            400,
            "absolute",
        ),
        (
            "POST",
            format!("/dataflows/{name}/recordings"),
            Some(json!({"file": "/nope/nope.mcap"})),
            400,
            "nope.mcap",
        ),
        (
            "POST",
            "/recordings/1/stop".to_owned(),
            None,
            404,
            "no recording 1",
        ),
        (
            "POST",
            "/invitations".to_owned(),
            Some(json!({"valid_seconds": 0})),
            400,
            "valid_seconds",
        ),
        (
            "POST",
            "/machines/robot/approve".to_owned(),
            None,
            400,
            "belongs to no fleet",
        ),
        (
            "GET",
            "/machines".to_owned(),
            None,
            400,
            "belongs to no fleet",
        ),
        (
            "POST",
            "/dataflows/nope/stop".to_owned(),
            None,
            404,
            "no dataflow `nope`",
        ),
        (
            "POST",
            format!("/dataflows/{name}/nodes/nope/stop"),
            None,
            400,
            "nope",
        ),
        (
            "POST",
            format!("/dataflows/{name}/nodes/idle/dance"),
            None,
            400,
            "malformed",
        ),
        (
            "PUT",
            format!("/dataflows/{name}/params/idle/speed"),
            Some(json!({"value": 10})),
            400,
            "speed",
        ),
        (
            "PUT",
            format!("/dataflows/{name}/params/idle/speed"),
            Some(json!({"valeu": 1})),
            422,
            "body",
        ),
        (
            "PUT",
            format!("/dataflows/{name}/params/--help/speed"),
            Some(json!({"value": 1})),
            400,
            "--help",
        ),
        (
            "POST",
            "/dataflows".to_owned(),
            Some(json!({"file": "two.yml"})),
            400,
            "absolute",
        ),
        (
            "POST",
            "/dataflows".to_owned(),
            Some(json!({"file": "/nope.yml"})),
            400,
            "nope.yml",
        ),
        (
            "POST",
            "/dataflows".to_owned(),
            Some(json!({"file": "/dev/zero"})),
            400,
            "`/dev/zero` is no regular file",
        ),
        (
            "POST",
            "/dataflows".to_owned(),
            Some(json!({"file": "/proc/kmsg"})),
            400,
            "/proc/kmsg",
        ),
        (
            "POST",
            "/dataflows".to_owned(),
            Some(json!({"file": "x".repeat(300_000)})),
            413,
            "body",
        ),
    ] {
        let (got, answer) = server.api(method, &path, body);
        assert_eq!(got, status, "{method} {path}: {answer:#}");
        assert_eq!(answer["message"], "error", "{method} {path}: {answer:#}");
        let message = answer["error"].to_string();
        assert!(message.contains(text), "{method} {path}: {answer:#}");
    }
}

#[test]
fn nodes_parameters_and_dataflows_are_changed() {
    let mut run = quiet();
    let server = server(&run);
    let of_dataflow = format!("/dataflows/{}", run.name());
    let order = |method: &str, path: &str, body: Option<Value>| {
        let (status, answer) = server.api(method, &format!("{of_dataflow}{path}"), body);
        assert_eq!(status, 200, "{path}: {answer:#}");
        answer
    };
    let set = order("PUT", "/params/idle/speed", Some(json!({"value": 7})));
    assert_eq!(
        (&set["value"], &set["initial"]),
        (&json!(7), &json!(2)),
        "{set:#}"
    );
    run.line("idle", "PARAM speed 7");

    let before = run.started("idle");
    let stopped = order("POST", "/nodes/idle/stop", None);
    assert_eq!(
        (&stopped["order"], &stopped["pid"]),
        (&json!("stop"), &Value::Null)
    );
    before.assert_ends();
    let started = order("POST", "/nodes/idle/start", None);
    assert!(started["pid"].is_u64(), "{started:#}");

    assert_eq!(order("POST", "/pause", None)["paused"], true);
    assert_eq!(server.get(&of_dataflow)["state"], "paused");
    assert_eq!(order("POST", "/resume", None)["paused"], false);

    assert_eq!(order("POST", "/stop", None)["stopped"], true);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_dataflow_is_started_and_outlives_the_server() {
    let dataflow = Dataflow::named().node("idle", "idle", json!({"params": {"speed": 2}}));
    let file = dataflow.write();
    let mut command = dataflow.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("NERVURE_STATE", dataflow.folder());
    let server = Server::start(command);
    let name = format!("{}-too", dataflow.name());
    let start = json!({"file": file, "name": name, "params": {"idle.speed": 5}});
    let (status, started) = server.api("POST", "/dataflows", Some(start));
    assert_eq!(status, 200, "{started:#}");
    assert_eq!(started["dataflow"], name.as_str(), "{started:#}");
    drop(server);
    let speed = output(dataflow.command(&["param", "get", "-d", &name, "idle", "speed"]));
    assert_eq!((speed.0, speed.1.as_str()), (Some(0), "5\n"), "{}", speed.2);
    let (code, _, stderr) = output(dataflow.command(&["stop", "-d", &name]));
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn every_route_is_in_the_document() {
    let run = Dataflow::named().node("idle", "idle", json!({})).run(&[]);
    let server = server(&run);
    let document = server.get("/openapi.json");
    assert_eq!(
        document["openapi"].as_str().unwrap().split('.').next(),
        Some("3")
    );
    let operations: Vec<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    insta::assert_snapshot!(operations.join("\n"));
}
