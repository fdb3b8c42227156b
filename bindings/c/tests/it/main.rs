//! The header is generated, and compiles in C and C++.

use std::path::Path;
use std::process::{Command, Output};

/// The header that cbindgen makes from the crate.
fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    without_safety(&String::from_utf8(text).unwrap())
}

/// Removes the sections on safety for callers in Rust: in C they apply to every pointer.
fn without_safety(text: &str) -> String {
    let mut kept = Vec::new();
    let mut is_safety = false;
    for line in text.lines() {
        is_safety = (is_safety || line == "// # Safety") && line.starts_with("//");
        if is_safety {
            if kept.last() == Some(&"//") {
                kept.pop();
            }
        } else {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_header_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/nervure.h");
    let generated = generated();
    if std::env::var_os("NERVURE_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == generated,
        "include/nervure.h is stale: NERVURE_UPDATE_HEADER=1 cargo test -p nervure-c header"
    );
}

#[test]
fn the_headers_compile_without_warnings() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("headers");
    let languages = [
        ("c", "c11", "nervure.h"),
        ("c++", "c++17", "nervure.h"),
        ("c++", "c++17", "nervure.hpp"),
        ("c++", "c++17", "nervure_types.hpp"),
        ("c++", "c++20", "nervure_types.hpp"),
    ];
    for (language, standard, header) in languages {
        // Twice, as when a program's own headers include it too.
        let text = format!("#include <{header}>\n#include <nervure.h>\n#include <{header}>\n");
        std::fs::write(&source, text).unwrap();
        let output = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", language])
            .arg(format!("-std={standard}"))
            .arg("-I")
            .arg(&include)
            .args(["-c", "-o"])
            .arg(folder.path().join("header.o"))
            .arg(&source)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{header} in {language}: {errors}");
    }
}

#[test]
fn the_structs_of_standard_types_have_their_defaults_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("types.cpp", &folder.path().join("types"));
    assert!(output.status.success(), "{output:?}");
}

/// The program replaces the functions of the library that the wrapper calls.
#[test]
fn errors_of_the_wrapper_name_what_was_expected_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("errors.cpp", &folder.path().join("errors"));
    let expected = "\
the sample: expected an integer, got a text
the sample: expected a tensor, got a text
the elements of the tensor: expected f32, got u8
the tensor: expected one in C order, got one with strides (value() has them)
the tensor: expected an address that 2 divides, got one with the remainder 1
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// Builds and runs a program in C++.
fn run(source: &str, program: &Path) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg("-o")
        .arg(program)
        .arg(root.join("tests/it").join(source))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    Command::new(program).output().unwrap()
}
