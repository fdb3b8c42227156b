//! Definitions of types in folders beside a dataflow file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nervure_dataflow::{Code, Report, load};
use nervure_types::Definition;

/// Writes files into a folder, and loads `main.yml` of it.
fn report(files: &[(&str, &[u8])], prepare: impl FnOnce(&Path)) -> Report {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    prepare(folder.path());
    load(&folder.path().join("main.yml"))
}

const MAIN: (&str, &[u8]) = (
    "main.yml",
    b"types: [msgs]\nnodes:\n  - {id: a, path: sh, outputs: {pose: {type: my/Pose@2}, name: {type: your/Pose@1}}}\n",
);
const SIDECAR: (&str, &[u8]) = (
    "msgs/my/Pose.toml",
    b"version = 2\n[fields.note]\noptional = true\n",
);

#[test]
fn a_type_of_a_folder_has_its_definition_in_the_node() {
    for file in ["msgs/my/Pose.msg", "msgs/my/msg/Pose.msg"] {
        let sidecar = (&*file.replace(".msg", ".toml"), SIDECAR.1);
        let text: &[u8] = b"std/Vector3 at\ngeometry_msgs/Point from\nstring note\n";
        let report = report(&[MAIN, (file, text), sidecar], |_| {});
        let dataflow = report
            .dataflow
            .as_ref()
            .unwrap_or_else(|| panic!("{}", report.render(false)));
        let types = &dataflow.nodes[0].types;
        assert_eq!(types.keys().collect::<Vec<_>>(), ["my/Pose@2"]);
        let pose: &Definition = &types["my/Pose@2"];
        assert!(pose.has_fields(&[
            ("at", "std/Vector3"),
            ("from", "geometry_msgs/Point"),
            ("note", "string")
        ]));
        assert!(pose.fields[2].is_optional);
    }
}

#[test]
fn errors_of_definitions_name_file_line_and_column() {
    let sidecar = "version = 2\n[fields.note]\noptional = true\n";
    for (text, sidecar, file, place) in [
        (
            "int32 ok\n flaot64 note\n",
            sidecar,
            "msgs/my/Pose.msg",
            (2, 2),
        ),
        ("string note\nint32\n", sidecar, "msgs/my/Pose.msg", (2, 6)),
        (
            "string note\nuint8 A=300\n",
            sidecar,
            "msgs/my/Pose.msg",
            (2, 9),
        ),
        ("Pose again\n", "", "msgs/my/Pose.msg", (0, 0)),
        (
            "string note\n",
            "version = 2\nnote = 1\n",
            "msgs/my/Pose.toml",
            (2, 1),
        ),
    ] {
        let files = [
            MAIN,
            ("msgs/my/Pose.msg", text.as_bytes()),
            ("msgs/my/Pose.toml", sidecar.as_bytes()),
        ];
        let report = report(&files, |_| {});
        let found = report
            .diagnostics
            .iter()
            .find(|found| found.code == Code::InvalidType);
        let found = found.unwrap_or_else(|| panic!("{}", report.render(false)));
        assert!(found.file.ends_with(file), "{found:?}");
        let found_at = found
            .location
            .as_ref()
            .map_or((0, 0), |at| (at.line, at.column));
        assert_eq!(found_at, place, "{found:?}");
        assert!(report.render(false).contains(file));
    }
}

#[test]
fn hostile_folders_are_refused_with_a_limit() {
    let pose: (&str, &[u8]) = ("msgs/my/Pose.msg", b"string note\n");
    let failed = |extra: (&str, &[u8]), prepare: fn(&Path)| {
        let report = report(&[MAIN, pose, SIDECAR, extra], prepare);
        assert!(report.has_errors());
        report.render(false)
    };
    let huge = vec![b'#'; 2 << 20];
    assert!(failed(("msgs/my/Huge.msg", &huge), |_| {}).contains("larger than the limits"));
    assert!(failed(("msgs/my/Odd.msg", b"\xff\xfe"), |_| {}).contains("is not UTF-8"));
    let standard = "msgs/std/Imu.msg is `std`";
    assert!(failed(("msgs/std/Imu.msg", b"int32 x\n"), |_| {}).contains(standard));
    let namespace = "msgs/a-b/Imu.msg is `a-b`, expected letters";
    assert!(failed(("msgs/a-b/Imu.msg", b"int32 x\n"), |_| {}).contains(namespace));
    assert!(failed(("msgs/my/a b.msg", b"int32 x\n"), |_| {}).contains("a b.msg is `a b`"));
    assert!(failed(("msgs/Odd.msg", b"int32 x\n"), |_| {}).contains("has no namespace"));
    let in_itself = |folder: &Path| {
        symlink("Loop.msg", folder.join("msgs/my/Loop.msg")).unwrap();
    };
    assert!(failed(("msgs/x", b""), in_itself).contains("Loop.msg is no file"));
    let many = |folder: &Path| {
        for number in 0..1_000 {
            fs::write(folder.join(format!("msgs/my/M{number}.msg")), "int8 x\n").unwrap();
        }
    };
    assert!(failed(("msgs/x", b""), many).contains("too many entries"));
    // A folder in itself is read to a depth of two.
    let report = report(&[MAIN, pose, SIDECAR], |folder| {
        symlink("..", folder.join("msgs/my/msg")).unwrap();
    });
    assert!(!report.has_errors(), "{}", report.render(false));
}

#[test]
fn an_edge_between_modules_with_different_definitions_is_refused() {
    let main = "nodes:\n  - {id: a, module: a/a.yml}\n  - {id: b, module: b/b.yml, inputs: {pose: a/pose}}\n";
    let source = "types: [msgs]\nmodule: {name: a, outputs: [pose]}\nnodes:\n  - {id: n, path: sh, outputs: {pose: {type: my/Pose@1}}}\n";
    let sink = "types: [msgs]\nmodule: {name: b, inputs: [pose]}\nnodes:\n  - {id: n, path: sh, inputs: {pose: {source: _mod/pose, type: my/Pose@1}}}\n";
    let with = |first: &str, second: &str, sidecar: &str| {
        report(
            &[
                ("main.yml", main.as_bytes()),
                ("a/a.yml", source.as_bytes()),
                ("b/b.yml", sink.as_bytes()),
                ("a/msgs/my/Pose.msg", first.as_bytes()),
                ("b/msgs/my/Pose.msg", second.as_bytes()),
                ("b/msgs/my/Pose.toml", sidecar.as_bytes()),
            ],
            |_| {},
        )
    };
    let same = with("float64 x\n", "# other\nfloat64   x\n", "");
    assert!(!same.has_errors(), "{}", same.render(false));
    let added = with(
        "float64 x\n",
        "float64 x\nfloat64 y\n",
        "[fields.y]\noptional = true\n",
    );
    assert!(!added.has_errors(), "{}", added.render(false));
    let report = with("float64 x\nfloat64[9] c\n", "float64 x\nfloat64[6] c\n", "");
    let [found] = &report.diagnostics[..] else {
        panic!("{}", report.render(false))
    };
    assert_eq!(
        (
            found.code,
            found.location.as_ref().unwrap().line,
            found.related[0].location.line
        ),
        (Code::TypeMismatch, 3, 2)
    );
    let definitions = found.definitions.as_ref().unwrap();
    let ends = |file: &str, end: &str| assert!(file.ends_with(end), "{file}");
    ends(&definitions.files[0], "/b/msgs/my/Pose.msg");
    ends(&definitions.files[1], "/a/msgs/my/Pose.msg");
    let [x, c] = &definitions.fields[..] else {
        panic!("{definitions:?}")
    };
    assert_eq!((&*x.path, x.differs), ("x", false));
    assert_eq!((&*c.path, c.differs), ("c", true));
    assert_eq!(c.types, ["float64[6]", "float64[9]"]);
    let rendered = report.render(false);
    let row = |field: &str| {
        let line = rendered
            .lines()
            .find(|line| line.trim_start().starts_with(field));
        let line = line.unwrap_or_else(|| panic!("{rendered}"));
        line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("x "), "x float64 float64");
    assert_eq!(row("c "), "c float64[6] float64[9] differs");
    assert!(rendered.contains("they differ in `c`"), "{rendered}");
}

#[test]
fn a_module_with_another_definition_than_the_outer_file_is_refused() {
    let main = "types: [msgs]\nnodes:\n  - {id: a, path: sh, outputs: {pose: {type: my/Pose@1}}}\n  - {id: b, module: b/b.yml, inputs: {pose: a/pose}}\n";
    let sink = "module: {name: b, inputs: [pose]}\nnodes:\n  - {id: n, path: sh, inputs: {pose: {source: _mod/pose, type: my/Pose@1}}}\n";
    let own = format!("types: [msgs]\n{sink}");
    let with = |sink: &str| {
        let files = [
            ("main.yml", main),
            ("b/b.yml", sink),
            ("msgs/my/Pose.msg", "float64 x\n"),
            ("b/msgs/my/Pose.msg", "float64 x\nfloat64 y\n"),
        ];
        report(&files.map(|(name, text)| (name, text.as_bytes())), |_| {})
    };
    let outer = with(sink);
    assert!(!outer.has_errors(), "{}", outer.render(false));
    let [found] = &with(&own).diagnostics[..] else {
        panic!("one finding")
    };
    assert_eq!(found.code, Code::TypeMismatch);
    assert_eq!(
        found.definitions.as_ref().unwrap().fields[1].types,
        ["float64", "-"]
    );
}
