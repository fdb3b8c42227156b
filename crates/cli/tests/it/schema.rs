//! `nervure schema`.

use serde_json::Value;

use crate::dataflow::nervure;

#[test]
fn the_schema_is_json_and_knows_the_keys() {
    let output = nervure(std::path::Path::new("/"))
        .arg("schema")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["$schema"].is_string());
    assert!(schema["properties"]["nodes"].is_object());
}
