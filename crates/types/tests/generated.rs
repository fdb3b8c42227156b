//! Keeps the committed code of the standard types up to date.
//!
//! `UPDATE_REFERENCE=1 cargo test -p nervure-types --all-features` updates it.
#![cfg(feature = "generate")]

use std::path::Path;

use nervure_types::generate::{Language, generate};
use nervure_types::{standard_names, standard_type};

const FILES: [(Language, &str); 3] = [
    (Language::Python, "bindings/python/python/nervure/types.py"),
    (Language::Rust, "crates/node/src/types.rs"),
    (Language::Cpp, "bindings/c/include/nervure_types.hpp"),
];

#[test]
fn the_committed_code_is_what_the_generator_prints() {
    let all: Vec<_> = standard_names()
        .filter_map(|name| standard_type(&name))
        .collect();
    for (language, file) in FILES {
        let code = generate(language, &all).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &code).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == code,
            "{file} differs from the definitions: run UPDATE_REFERENCE=1 cargo test -p nervure-types --all-features"
        );
    }
}
