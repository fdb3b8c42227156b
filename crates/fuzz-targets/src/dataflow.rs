//! A hostile dataflow file: refused with findings that point into it, or a graph whose indices hold.

use std::path::Path;

use nervure_dataflow::{Anywhere, parse};

/// See the module.
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
        "a file cannot steer the terminal"
    );
    serde_json::to_string(&report).expect("a report is data");

    let Some(dataflow) = report.dataflow else {
        return;
    };
    for edge in &dataflow.edges {
        assert!(dataflow.topic(edge.from).starts_with(&dataflow.name));
        assert!(!dataflow.input(edge).name.is_empty());
    }
    assert!(dataflow.to_mermaid().lines().count() > dataflow.nodes.len());
}
