//! Files of this host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nervure_dataflow::{Code, Program, load};

#[test]
fn programs_are_found_relative_to_the_file_and_on_the_path() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "camera.py", "");
    write(folder.path(), "control", "#!/bin/sh\n");
    fs::set_permissions(
        folder.path().join("control"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let text = "nodes:
  - {id: camera, path: camera.py, outputs: [image]}
  - {id: control, path: ./control, inputs: {image: camera/image}}
  - {id: shell, path: sh, args: [-c, 'true'], inputs: {image: camera/image}}
";
    write(folder.path(), "drive.yml", text);
    let report = load(&folder.path().join("drive.yml"));
    let dataflow = report
        .dataflow
        .as_ref()
        .unwrap_or_else(|| panic!("{}", report.render(false)));
    assert_eq!(dataflow.name, "drive");
    assert_eq!(dataflow.directory, folder.path());
    let programs: Vec<&Program> = dataflow.nodes.iter().map(|node| &node.program).collect();
    let expected = [
        Program::Python(folder.path().join("camera.py")),
        Program::Executable(folder.path().join("control")),
        Program::Command("sh".to_owned()),
    ];
    assert_eq!(programs, expected.iter().collect::<Vec<_>>());
}

#[test]
fn the_nearest_file_of_the_folder_is_suggested() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "nodes.yml",
        "nodes: [{id: a, path: nodes/camra.py, outputs: [b]}]",
    );
    fs::create_dir(folder.path().join("nodes")).unwrap();
    write(&folder.path().join("nodes"), "camera.py", "");
    let report = load(&folder.path().join("nodes.yml"));
    assert_eq!(
        report.diagnostics[0].suggestion.as_deref(),
        Some("nodes/camera.py")
    );
}

#[test]
fn the_reason_for_an_unreadable_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "drive.yml", "nodes: []");
    let missing = load(&folder.path().join("drvie.yml"));
    let suggestion = folder.path().join("drive.yml").display().to_string();
    assert_eq!(missing.diagnostics[0].code, Code::UnreadableFile);
    assert_eq!(missing.diagnostics[0].suggestion, Some(suggestion.clone()));
    assert!(
        missing
            .render(false)
            .contains("error[unreadable-file]: there is no file")
    );

    let itself = load(folder.path());
    assert!(
        itself.diagnostics[0].message.ends_with("is a folder"),
        "{}",
        itself.render(false)
    );
    assert_eq!(itself.diagnostics[0].suggestion, Some(suggestion));
    assert!(itself.dataflow.is_none());
}

#[test]
fn an_endless_file_is_refused() {
    let report = load(Path::new("/dev/zero"));
    assert_eq!(report.diagnostics[0].code, Code::FileTooLarge);
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn the_number_of_inputs_is_limited() {
    let report = |inputs: u32| {
        let inputs: String = (0..inputs)
            .map(|number| format!("      in{number}: source/out\n"))
            .collect();
        let text = format!(
            "nodes:\n  - {{id: source, path: sh, outputs: [out]}}\n  - id: sink\n    path: sh\n    inputs:\n{inputs}"
        );
        nervure_dataflow::parse(
            "drive.yml",
            text.as_bytes(),
            Path::new("/"),
            &nervure_dataflow::Anywhere,
        )
    };
    assert!(!report(4095).has_errors());
    let report = report(5000);
    let finding = &report.diagnostics[0];
    let location = finding.location.as_ref().unwrap();
    assert_eq!(
        (finding.code, location.line, location.column),
        (Code::OutOfRange, 6 + 4095, 7)
    );
    assert_eq!(finding.expected.as_deref(), Some("at most 4095 inputs"));
}

#[test]
fn a_program_in_place_of_a_dataflow_file_is_called_one() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, what) in [
        ("camera.py", "print('it\\'s')", "is a Python script"),
        ("start", "#!/bin/sh\necho \"", "is a script"),
        ("camera", "\x7fELF\"", "is a compiled program"),
        ("camera.rs", "fn main() {", "is a source file"),
    ] {
        write(folder.path(), name, text);
        let report = load(&folder.path().join(name));
        let [diagnostic] = &report.diagnostics[..] else {
            panic!("{name}: {:?}", report.diagnostics)
        };
        assert!(diagnostic.message.contains(what), "{name}: {diagnostic:?}");
        let hint = diagnostic.hint.as_deref().unwrap_or_default();
        assert!(hint.contains("nodes: [{id: "), "{name}: {diagnostic:?}");
    }
    write(folder.path(), "drive.yml", "nodes: []");
    let report = load(&folder.path().join("camera.py"));
    let suggestion = report.diagnostics[0].suggestion.as_deref().unwrap();
    assert!(suggestion.ends_with("/drive.yml"), "{suggestion}");
}

#[test]
fn a_file_that_is_written_as_it_is_read_counts_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "empty.yml", "");
    // As /proc/kmsg, whose end may never come.
    let [found, expected] =
        [Path::new("/proc/version"), &folder.path().join("empty.yml")].map(|path| {
            let diagnostics = load(path).diagnostics;
            diagnostics
                .iter()
                .map(|it| it.message.clone())
                .collect::<Vec<_>>()
        });
    assert_eq!(found, expected);
}
