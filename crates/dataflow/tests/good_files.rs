//! Files without errors, and their graphs.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use nervure_dataflow::{Anywhere, Entry, Report, RestartPolicy, Severity, Surroundings};
use support::parse;

#[test]
fn the_graph_of_each_file_matches_its_snapshot() {
    for (name, report) in fixtures() {
        assert!(!report.has_errors(), "{name}:\n{}", report.render(false));
        let json = serde_json::to_string_pretty(&report).unwrap();
        let mermaid = report.dataflow.unwrap().to_mermaid();
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "good" }, {
            insta::assert_snapshot!(name.as_str(), format!("{mermaid}\n{json}"));
        });
    }
}

#[test]
fn the_only_warning_is_about_a_program_that_is_not_built() {
    for (name, report) in fixtures() {
        let warnings = report
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Warning);
        let codes: BTreeSet<&str> = warnings
            .map(|diagnostic| diagnostic.code.as_str())
            .collect();
        let expected = match name.as_str() {
            "dora" => BTreeSet::from(["not-built"]),
            _ => BTreeSet::new(),
        };
        assert_eq!(codes, expected, "{name}:\n{}", report.render(false));
    }
}

#[test]
fn one_file_contains_every_key() {
    let text = include_str!("good/every-key.yml");
    let schema = nervure_dataflow::schema();
    // The keys of module files are in files of their own.
    let is_own = |(level, _): &(&String, &serde_json::Value)| !level.starts_with("module");
    let levels = schema["$defs"]
        .as_object()
        .unwrap()
        .iter()
        .filter(is_own)
        .map(|(_, level)| level)
        .chain([&schema]);
    let keys = levels.flat_map(|level| level["properties"].as_object().unwrap().keys());
    let aliases = [
        "shared_memory_pool_size",
        "on-failure",
        "shared_library",
        "queue-size",
        "_unstable_deploy",
    ];
    for key in keys.filter(|key| !aliases.contains(&key.as_str())) {
        assert!(
            text.contains(&format!("{key}:")),
            "tests/good/every-key.yml has no `{key}`"
        );
    }
}

#[test]
fn nodes_inherit_the_environment_of_the_dataflow() {
    let report = parse("every-key.yml", include_bytes!("good/every-key.yml"));
    let dataflow = report.dataflow.unwrap();
    let camera = &dataflow.node("camera").unwrap().settings.env;
    let expected = [
        ("LOG_LEVEL", "debug"),
        ("MODELS", "/home/robot/models"),
        ("VERSION", "1.10"),
        ("DEVICE", "0x10"),
        ("FLIP", "true"),
        ("PRICE", "$5"),
        ("CACHE", "/tmp/cache"),
    ];
    for (name, value) in expected {
        assert_eq!(camera[name], value, "{name}");
    }
    assert_eq!(
        dataflow.node("control").unwrap().settings.env["LOG_LEVEL"],
        "info"
    );
}

#[test]
fn variables_are_filled_into_arguments_and_parameters() {
    let variable = |name: &str| match name {
        "FPS" => Some("30"),
        "NAME" => Some("front camera"),
        "EMPTY" => Some(""),
        _ => None,
    };
    struct Host<F>(F);
    impl<F: Fn(&str) -> Option<&'static str>> Surroundings for Host<F> {
        fn variable(&self, name: &str) -> Option<String> {
            self.0(name).map(str::to_owned)
        }
        fn argument(&self, _name: &str) -> Option<String> {
            None
        }
        fn entry(&self, path: &Path) -> Entry {
            Anywhere.entry(path)
        }
        fn names_in(&self, folder: &Path) -> Vec<String> {
            Anywhere.names_in(folder)
        }
        fn has_command(&self, name: &str) -> bool {
            Anywhere.has_command(name)
        }
    }
    let text = r#"
nodes:
  - id: a
    path: a.py
    args: --name $NAME '${FPS}' "${SIZE:-2 MB}" $$HOME
    params:
      fps: ${FPS}
      text: "${FPS}"
      declared: {value: $FPS, type: str, one_of: [$FPS, "60"]}
      rate: {value: "$FPS.5", type: str}
      typed: {value: "${FPS}", type: int, one_of: ["$FPS", 60]}
      list: [1, $FPS]
      model: $NAME/${SIZE:-small}
      empty: $EMPTY
      dollar: $$5
  - {id: b, path: b.py, args: [--name, "$NAME!", 5]}
"#;
    let report = nervure_dataflow::parse("a.yml", text.as_bytes(), Path::new("/"), &Host(variable));
    let dataflow = report
        .dataflow
        .as_ref()
        .unwrap_or_else(|| panic!("{}", report.render(false)));
    let [a, b] = dataflow.nodes.as_slice() else {
        panic!("{:?}", dataflow.nodes)
    };
    assert_eq!(
        a.settings.args,
        ["--name", "front camera", "30", "2 MB", "$HOME"]
    );
    assert_eq!(b.settings.args, ["--name", "front camera!", "5"]);
    let values: Vec<_> = a
        .settings
        .params
        .iter()
        .map(|param| param.value.to_string())
        .collect();
    let expected = [
        "30",
        "\"30\"",
        "\"30\"",
        "\"30.5\"",
        "30",
        "[1,30]",
        "\"front camera/small\"",
        "\"\"",
        "\"$5\"",
    ];
    assert_eq!(values, expected);
}

#[test]
fn dashes_and_underscores_are_the_same_in_words_and_keys() {
    let file = |policy: &str, key: &str, queue: &str| {
        format!(
            "nodes: [{{id: a, path: camera.py, outputs: [out], restart_policy: {policy}, \
             {key}: {{output: out, value: 0}}}}, {{id: b, path: camera.py, \
             inputs: {{in: {{source: a/out, queue_policy: {queue}}}}}}}]"
        )
    };
    let of = |text: String| {
        parse("dashes.yml", text.as_bytes())
            .dataflow
            .unwrap_or_else(|| panic!("{text}"))
    };
    let one = of(file("on-failure", "on_failure", "drop_newest"));
    assert_eq!(
        one.nodes[0].settings.restart.policy,
        RestartPolicy::OnFailure
    );
    assert_eq!(one.nodes[0].settings.on_failure.len(), 1);
    assert_eq!(of(file("on_failure", "on-failure", "drop-newest")), one);
}

#[test]
fn sources_may_leave_out_the_id_of_a_single_operator() {
    let file = |source: &str| {
        format!(
            "nodes: [{{id: a, operator: {{python: camera.py, outputs: [image]}}}}, \
             {{id: b, operator: {{id: view, python: camera.py, inputs: {{image: {source}}}}}}}]"
        )
    };
    let of = |source: &str| parse("a.yml", file(source).as_bytes()).dataflow;
    let short = of("a/image").unwrap();
    assert_eq!(short.topic(short.edges[0].from), "a:a/op/image");
    assert_eq!(short.nodes[1].inputs[0].name, "view/image");
    assert_eq!(of("a/op/image"), Some(short));
    assert_eq!(of("a/view/image"), None);
}

#[test]
fn lines_of_nodes_come_from_a_node_of_their_own() {
    let text = "nodes:
  - {id: a, path: camera.py, outputs: [x, lines], send_stdout_as: lines}
  - {id: b, operator: {python: camera.py, outputs: [lines], send_logs_as: lines}}
  - {id: c, path: camera.py, inputs: {a: a/lines, b: b/lines, all: dora/logs/warn, x: a/x}}
";
    let report = parse("a.yml", text.as_bytes());
    let dataflow = report
        .dataflow
        .as_ref()
        .unwrap_or_else(|| panic!("{}", report.render(false)));
    let topics: Vec<_> = dataflow
        .edges
        .iter()
        .map(|edge| dataflow.topic(edge.from))
        .collect();
    assert_eq!(
        topics,
        [
            "a:a/lines",
            "a:b/op/lines",
            "a:nervure-logs/logs/c/all",
            "a:a/x"
        ]
    );
    assert_eq!(dataflow.nodes[3].id, "nervure-logs");
    assert_eq!(dataflow.nodes[0].outputs.len(), 1);
}

#[test]
fn nodes_of_a_module_take_its_place() {
    let report = parse("every-key.yml", include_bytes!("good/every-key.yml"));
    let dataflow = report.dataflow.unwrap();
    let node = |id: &str| dataflow.node(id).unwrap_or_else(|| panic!("{id}"));
    let double = &node("pipeline.double").settings;
    assert_eq!(double.args, ["--gain", "2"]);
    assert_eq!(double.env["PARAM_GAIN"], "2");
    assert_eq!(double.env["LOG_LEVEL"], "error");
    let topics: Vec<_> = [
        "pipeline.double",
        "pipeline.filter.op",
        "pipeline.last",
        "end",
    ]
    .iter()
    .map(|id| {
        let edges = dataflow.edges.iter();
        let topics = edges.filter(|edge| dataflow.nodes[edge.to.node].id == *id);
        topics
            .map(|edge| dataflow.topic(edge.from))
            .collect::<Vec<_>>()
    })
    .collect();
    assert_eq!(
        topics,
        [
            ["drive:camera/image"],
            ["drive:pipeline.double/doubled"],
            ["drive:pipeline.filter.op/op/filtered"],
            ["drive:pipeline.last/result"]
        ]
    );
    assert_eq!(
        node("pipeline.last").build.as_deref(),
        Some("pip install transform")
    );
}

#[test]
fn inputs_that_a_module_leaves_out_move_those_of_loop_and_sync() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("node.py", "");
    write(
        "fuse.yml",
        "module: {name: fuse, inputs: [image], inputs_optional: [depth]}\nnodes:\n  - id: fuse\n    path: node.py\n    \
         inputs: {depth: _mod/depth, tick: nervure/timer/hz/10, image: _mod/image, imu: source/imu}\n    \
         loop: {input: tick, finish_within: 2ms}\n    sync: {inputs: [depth, image], collect: [imu]}\n  \
         - {id: source, path: node.py, outputs: [imu]}\n",
    );
    write(
        "main.yml",
        "nodes:\n  - {id: camera, path: node.py, outputs: [image]}\n  \
         - {id: m, module: fuse.yml, inputs: {image: camera/image}}\n",
    );
    let report = nervure_dataflow::load(&folder.path().join("main.yml"));
    let dataflow = report
        .dataflow
        .unwrap_or_else(|| panic!("{:?}", report.diagnostics));
    let fuse = dataflow.node("m.fuse").unwrap();
    let name = |input: usize| fuse.inputs[input].name.as_str();
    let sync = fuse.settings.sync.as_ref().unwrap();
    assert_eq!(name(fuse.settings.loop_deadline.unwrap().input), "tick");
    assert_eq!(
        (
            sync.inputs.iter().copied().map(name).collect::<Vec<_>>(),
            sync.collect.iter().copied().map(name).collect::<Vec<_>>()
        ),
        (vec!["image"], vec!["imu"])
    );
}

fn fixtures() -> Vec<(String, Report)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good");
    let entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .collect::<io::Result<_>>()
        .unwrap();
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
    paths.sort();
    assert!(paths.len() >= 4, "the files are missing");
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let report = parse(&format!("{name}.yml"), &fs::read(path).unwrap());
        (name, report)
    };
    paths.iter().map(read).collect()
}
