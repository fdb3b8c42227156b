//! Small files with every mistake that a dataflow file can have, and the messages about them.
//!
//! The messages are snapshots for reviewers; `INSTA_UPDATE=always cargo test` updates them.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use nervure_dataflow::{Code, MAX_DIAGNOSTICS, MAX_FILE_BYTES, Report};
use support::parse;

#[test]
fn messages_about_each_file_match_their_snapshot() {
    for (name, report) in fixtures() {
        assert!(!report.diagnostics.is_empty(), "{name} has no finding");
        assert_eq!(report.has_errors(), report.dataflow.is_none(), "{name}");
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name.trim_end_matches(".yml"), report.render(false));
        });
    }
}

#[test]
fn syntax_errors_are_explained_by_their_place() {
    let cases = [
        ("a: b: c", "a `:` stands where no key can be"),
        (
            "a:\n  b: 1\n c: 2",
            "this line fits neither the map above it nor a new one",
        ),
        (
            "a: 1\n- b",
            "this line fits neither the map above it nor a new one",
        ),
        (
            "a:\n  - b\n  c: 1",
            "this line is not an item of the list above it",
        ),
        ("a: - b", "a list item (`-`) stands where none can be"),
        ("a: ? b", "a key stands where none can be"),
        (
            "a: \"\\q\"",
            "a backslash in double quotes begins an escape that does not exist",
        ),
        (
            "a: [\"\\x1\"]",
            "a backslash in double quotes begins an escape that does not exist",
        ),
        ("a: 'b' c", "text follows after a closing quote"),
        ("a: 'it's'", "text follows after a closing quote"),
        ("a: \"b", "a quote is opened here and not closed"),
        ("a: ['b", "a quote is opened here and not closed"),
        (
            "a:\n  b: \"c\nd: \"e\"",
            "a quote is opened here and not closed",
        ),
        ("a: 1\nb\nc: 2", "a key has no `:`"),
        ("a:\n  - b: 1\n    c\n  - d: 2", "a key has no `:`"),
        ("a:\n  - b: 1\n    c\n", "a key has no `:`"),
        (
            "a: *b",
            "an alias (`*name`) names an anchor that does not exist",
        ),
        (
            "a: * b",
            "`&` and `*` begin an anchor or an alias, which needs a name",
        ),
        (
            "a: & b",
            "`&` and `*` begin an anchor or an alias, which needs a name",
        ),
        ("a: @b", "this character cannot begin a value"),
        ("a: `b`", "this character cannot begin a value"),
        ("a: %b", "this character cannot begin a value"),
        (
            "%b\na: 1",
            "`%` begins a YAML directive, which dataflow files do not use",
        ),
        (
            "a: !<b",
            "`!` begins a YAML tag, which dataflow files do not use",
        ),
        ("a: |x\n  b", "a block of text (`|` or `>`) is malformed"),
        ("a: ]", "a bracket is closed that was not opened"),
        ("a: \0", "an invisible control character stands here"),
        (
            "a: b\u{feff}\n\u{feff}c: 1",
            "a byte order mark stands in the middle of the file",
        ),
        ("a:\n\tb: 1", "a tab indents this line"),
        ("a: |\n\tb", "a tab indents this line"),
        (
            "a: [b, c",
            "a list in `[..]` is not closed, or a `,` is missing",
        ),
        (
            "a: [b, 'c' d]",
            "a list in `[..]` is not closed, or a `,` is missing",
        ),
        (
            "a: &b {c: [d, e}",
            "a list in `[..]` is not closed, or a `,` is missing",
        ),
        (
            "a: {b: 1\nc: 2",
            "a map in `{..}` is not closed, or a `,` is missing",
        ),
        (
            "a: x [y # [\nb: {c: '[' d: 1}",
            "a map in `{..}` is not closed, or a `,` is missing",
        ),
    ];
    let others: Vec<String> = cases
        .into_iter()
        .map(|(text, expected)| (text, expected, parse("bad.yml", text.as_bytes())))
        .filter(|(_, expected, report)| report.diagnostics[0].message != *expected)
        .map(|(text, _, report)| format!("{text:?}\n{}", report.render(false)))
        .collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}

#[test]
fn excerpts_contain_no_terminal_control() {
    let file = "nodes: [{id: 5, name: \"\u{1b}[2J \u{9b}2J \u{7f} \u{202e}\"}]";
    let text = parse("control.yml", file.as_bytes()).render(false);
    let is_control = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(
        text.contains("id: 5") && !text.contains(is_control),
        "{text:?}"
    );
}

#[test]
fn each_code_is_shown_by_a_file() {
    let reports = fixtures()
        .into_iter()
        .chain(generated_files())
        .chain([(String::new(), too_many())]);
    let seen: BTreeSet<Code> = reports
        .flat_map(|(_, report)| report.diagnostics)
        .map(|diagnostic| diagnostic.code)
        .collect();
    // Tested with real files, in tests/load.rs.
    let elsewhere = [Code::UnreadableFile];
    let missing: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| !seen.contains(code) && !elsewhere.contains(code))
        .collect();
    assert!(missing.is_empty(), "no file in tests/bad shows {missing:?}");
}

#[test]
fn messages_about_other_bytes_match_their_snapshot() {
    for (name, report) in generated_files() {
        assert!(report.has_errors(), "{name}");
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name, report.render(false));
        });
    }
}

#[test]
fn a_finding_is_complete_as_data() {
    let report = parse("drive.yml", include_bytes!("bad/unknown-outputs.yml"));
    let json = serde_json::to_value(&report.diagnostics[0]).unwrap();
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("finding-as-data", serde_json::to_string_pretty(&json).unwrap());
    });
}

#[test]
fn messages_hold_no_control_characters() {
    for (name, report) in fixtures().into_iter().chain(generated_files()) {
        let text = report.render(false);
        let bad = text
            .chars()
            .find(|&character| character.is_control() && character != '\n');
        assert_eq!(bad, None, "{name}:\n{text:?}");
        assert!(!text.contains('\u{202e}'), "{name}");
    }
}

#[test]
fn findings_are_limited_and_the_rest_is_counted() {
    let report = too_many();
    assert_eq!(report.diagnostics.len(), MAX_DIAGNOSTICS + 1);
    assert_eq!(
        report.diagnostics.last().unwrap().message,
        "401 more findings are not listed"
    );
}

#[test]
fn line_ends_and_a_byte_order_mark_change_nothing() {
    let text = include_str!("bad/unknown-keys.yml").replace("\r\n", "\n");
    let expected = parse("f.yml", text.as_bytes());
    for other in [text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
        let report = parse("f.yml", other.as_bytes());
        let places = |report: &Report| -> Vec<_> {
            let locations = report
                .diagnostics
                .iter()
                .filter_map(|diagnostic| diagnostic.location.clone());
            locations
                .map(|at| (at.line, at.column, at.source_line))
                .collect()
        };
        assert_eq!(places(&report), places(&expected));
    }
}

fn fixtures() -> Vec<(String, Report)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .collect::<io::Result<Vec<_>>>()
        .unwrap()
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    assert!(paths.len() > 30, "the files are missing");
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let report = parse(&name, &fs::read(path).unwrap());
        (name, report)
    };
    paths.iter().map(read).collect()
}

/// Files that cannot be in a repository, or are too large for one.
fn generated_files() -> Vec<(String, Report)> {
    let utf16: Vec<u8> = "\u{feff}nodes: []"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let cases: [(&str, Vec<u8>); 7] = [
        ("empty", Vec::new()),
        ("only-comments", b"# nothing here yet\n\n".to_vec()),
        (
            "latin-1",
            b"nodes:\n  - id: kamera\n    description: Bilder f\xfcr alle\n".to_vec(),
        ),
        ("utf-16", utf16),
        ("binary", b"\x7fELF\x02\x01\x01\0\0\0\xff\xfe\x90".to_vec()),
        ("too-large", vec![b'#'; MAX_FILE_BYTES + 1]),
        (
            "too-deep",
            format!("nodes: {}", "[".repeat(100_000)).into_bytes(),
        ),
    ];
    cases
        .into_iter()
        .map(|(name, bytes)| (name.to_owned(), parse(&format!("{name}.yml"), &bytes)))
        .collect()
}

fn too_many() -> Report {
    let keys: String = (0..500)
        .map(|number| format!("wrong{number}: 1\n"))
        .collect();
    parse("many.yml", keys.as_bytes())
}
