//! Keeps the reference page and the JSON schema in docs/reference up to date.
//!
//! `UPDATE_REFERENCE=1 cargo test -p nervure-dataflow` updates them.

use std::fs;
use std::path::Path;

#[test]
fn the_reference_page_is_up_to_date() {
    check("dataflow.md", &nervure_dataflow::reference());
}

#[test]
fn the_schema_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&nervure_dataflow::schema()).unwrap();
    check("dataflow.schema.json", &format!("{schema}\n"));
}

fn check(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/{name} differs from the table of keys: run UPDATE_REFERENCE=1 cargo test -p nervure-dataflow"
    );
}
