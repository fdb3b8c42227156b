//! Files that are fine, and the graphs that they mean.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use nervure_dataflow::{Report, Severity};
use support::parse;

#[test]
fn every_file_gets_its_graph() {
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
fn the_only_warning_is_about_a_program_that_is_to_be_built() {
    for (name, report) in fixtures() {
        let warnings =
            report.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning);
        let codes: BTreeSet<&str> = warnings.map(|diagnostic| diagnostic.code.as_str()).collect();
        let expected = if name == "dora" { BTreeSet::from(["not-built"]) } else { BTreeSet::new() };
        assert_eq!(codes, expected, "{name}:\n{}", report.render(false));
    }
}

#[test]
fn one_file_has_every_key() {
    let text = include_str!("good/every-key.yml");
    let schema = nervure_dataflow::schema();
    let levels = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    let keys = levels.flat_map(|level| level["properties"].as_object().unwrap().keys());
    for key in keys.filter(|key| *key != "shared_memory_pool_size") {
        assert!(text.contains(&format!("{key}:")), "tests/good/every-key.yml has no `{key}`");
    }
}

#[test]
fn the_environment_of_a_node_is_the_dataflows_and_its_own() {
    let report = parse("every-key.yml", include_bytes!("good/every-key.yml"));
    let dataflow = report.dataflow.unwrap();
    let camera = &dataflow.node("camera").unwrap().env;
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
    assert_eq!(dataflow.node("control").unwrap().env["LOG_LEVEL"], "info");
}

fn fixtures() -> Vec<(String, Report)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good");
    let entries: Vec<_> = fs::read_dir(folder).unwrap().collect::<io::Result<_>>().unwrap();
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
    paths.sort();
    assert!(paths.len() >= 4, "the files are gone");
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let report = parse(&format!("{name}.yml"), &fs::read(path).unwrap());
        (name, report)
    };
    paths.iter().map(read).collect()
}
