//! Malicious dataflow files. They are refused with findings that point into the file, or become a
//! graph with valid indices.

use std::path::Path;

use nervure_dataflow::{Anywhere, parse};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let report = parse("fuzz.yml", bytes, Path::new("/robot"), &Anywhere);
    assert_eq!(report.has_errors(), report.dataflow.is_none());

    let text = report.source.text();
    for location in report
        .diagnostics
        .iter()
        .filter_map(|diagnostic| diagnostic.location.as_ref())
    {
        text.get(location.span.start..location.span.end)
            .expect("a finding points into the file");
    }
    let rendered = report.render(false);
    assert!(
        !rendered.contains('\u{1b}'),
        "findings must not contain terminal control sequences"
    );
    serde_json::to_string(&report).expect("a report must be serializable");

    let Some(dataflow) = report.dataflow else {
        return;
    };
    for edge in &dataflow.edges {
        assert!(dataflow.topic(edge.from).starts_with(&dataflow.name));
        assert!(!dataflow.input(edge).name.is_empty());
    }
    assert!(dataflow.to_mermaid().lines().count() > dataflow.nodes.len());
}
