//! Python environments of nodes: `--uv`, with shell scripts in the place of Python and uv.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::json;

use crate::dataflow::{Dataflow, output};

/// A Python that finds the package `nervure`, and runs scripts by the shell. Without the tool, only
/// an old pyarrow works.
const PYTHON: &str = r#"#!/bin/sh
case "$2" in
*nervure*) echo "$FAKE/nervure" ;;
*sysconfig*) dirname "$0" ;;
*pyarrow*) [ -e "$(dirname "$0")/tool" ] || grep -q 'pyarrow<26' "$(dirname "$0")/../installed" ;;
*) exec sh "$1" ;;
esac
"#;

/// A uv that installs any `tool==VERSION` as a command that prints its version.
const UV: &str = r#"#!/bin/sh
for last; do :; done
case "$1" in
venv)
    mkdir -p "$last/bin"
    cp "$FAKE/python3" "$last/bin/python"
    echo created >> "$last.created"
    ;;
pip)
    echo "$@" >> "$VIRTUAL_ENV/installed"
    case "$last" in
    tool==*)
        printf '#!/bin/sh\necho runs %s\n' "$last" > "$VIRTUAL_ENV/bin/tool"
        chmod +x "$VIRTUAL_ENV/bin/tool"
        ;;
    broken) exit 3 ;;
    esac
    ;;
esac
"#;

/// Two nodes that need the same command in different versions, and one without an environment.
fn conflicting() -> Dataflow {
    Dataflow::new()
        .raw(json!({"id": "old", "path": "tool", "build": "pip install tool==1"}))
        .raw(json!({"id": "new", "path": "tool", "build": "pip3 install tool==2"}))
        .python(
            "script",
            "echo in $VIRTUAL_ENV",
            json!({"build": "uv pip install numpy"}),
        )
        .shell(
            "plain",
            "echo in ${VIRTUAL_ENV-none}",
            json!({"build": "true"}),
        )
}

/// `nervure` with `python3` and the programs of `fakes` first on the PATH.
fn command(dataflow: &Dataflow, fakes: &[(&str, &str)], arguments: &[&str]) -> Command {
    let folder = dataflow.folder().join("fake");
    fs::create_dir_all(folder.join("nervure")).unwrap();
    for (name, script) in fakes.iter().chain(&[("python3", PYTHON)]) {
        let path = folder.join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = dataflow.command(arguments);
    command
        .env("FAKE", &folder)
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .arg(dataflow.write().file_name().unwrap());
    command
}

fn with_uv(dataflow: &Dataflow, arguments: &[&str]) -> (Option<i32>, String) {
    let (code, stdout, stderr) = output(command(dataflow, &[("uv", UV)], arguments));
    (code, stdout + &stderr)
}

/// The first line that a node printed.
fn printed<'s>(said: &'s str, node: &str) -> &'s str {
    let mut lines = said.lines().filter_map(|line| line.split_once('|'));
    let found = lines.find(|(name, _)| name.trim() == node);
    found.map_or("", |(_, text)| text.trim())
}

fn read(dataflow: &Dataflow, path: &str) -> String {
    let folder = dataflow.folder().join(".nervure/python/test");
    fs::read_to_string(folder.join(path)).unwrap()
}

#[test]
fn every_node_runs_with_the_packages_of_its_own_build() {
    let dataflow = conflicting();
    let (code, said) = with_uv(&dataflow, &["build", "--uv"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        read(&dataflow, "new/installed"),
        "pip install tool==2\npip install --quiet numpy pyarrow pyyaml\n"
    );
    let environments = dataflow.folder().join(".nervure/python/test");
    let package = fs::read_link(environments.join("new/bin/nervure")).unwrap();
    assert_eq!(package, dataflow.folder().join("fake/nervure"));
    let (code, said) = with_uv(&dataflow, &["run", "--uv"]);
    assert_eq!(code, Some(0), "{said}");
    let script = environments.join("script");
    assert_eq!(
        read(&dataflow, "script/installed"),
        "pip install numpy\npip install --quiet numpy pyarrow pyyaml\npip install --quiet pyarrow<26\n",
        "pyarrow could not be imported"
    );
    assert_eq!(printed(&said, "old"), "runs tool==1");
    assert_eq!(printed(&said, "new"), "runs tool==2");
    assert_eq!(printed(&said, "plain"), "in none");
    assert_eq!(printed(&said, "script"), format!("in {}", script.display()));
}

#[test]
fn only_another_build_makes_an_environment_again() {
    let build =
        |text: &str| Dataflow::new().raw(json!({"id": "node", "path": "tool", "build": text}));
    let dataflow = build("pip install tool==1");
    for _ in 0..2 {
        let (code, said) = with_uv(&dataflow, &["run", "--build", "--uv"]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(printed(&said, "node"), "runs tool==1");
    }
    assert_eq!(read(&dataflow, "node.created"), "created\n");
    let installed = read(&dataflow, "node/installed");
    assert_eq!(installed.matches("tool==1").count(), 2, "{installed}");

    let other = json!({"nodes": [{"id": "node", "path": "tool", "build": "pip install tool==2"}]});
    let file = dataflow.folder().join("test.yml");
    let run = |arguments: &[&str]| {
        let command = command(&dataflow, &[("uv", UV)], arguments);
        fs::write(&file, other.to_string()).unwrap();
        let (code, stdout, stderr) = output(command);
        (code, stdout + &stderr)
    };
    let (code, said) = run(&["run", "--uv"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("error: node `node` has no Python environment yet")
            && said.contains("test.yml:1: `build: pip install tool==2`")
            && said.contains("`nervure build --uv test.yml`"),
        "{said}"
    );
    let (code, said) = run(&["build", "--uv"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(read(&dataflow, "node.created"), "created\ncreated\n");
    assert!(!read(&dataflow, "node/installed").contains("tool==1"));
}

#[test]
fn without_uv_the_error_names_it() {
    let dataflow = conflicting();
    let (code, _, stderr) = output(command(&dataflow, &[], &["build", "--uv"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("`--uv` needs the command `uv`, which is not on the PATH")
            && stderr.contains("hint: install it: `pip install uv`"),
        "{stderr}"
    );
}

#[test]
fn a_failed_installation_names_the_node_and_leaves_no_environment_to_run_in() {
    let node = json!({"id": "node", "path": "tool", "build": "pip install broken"});
    let dataflow = Dataflow::new().raw(node);
    let (code, said) = with_uv(&dataflow, &["build", "--uv"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("error: the build of node `node` failed: exit status: 3")
            && said.contains("`pip install broken`")
            && said.contains("line 1 of the dataflow file"),
        "{said}"
    );
    let failing = "#!/bin/sh\necho no space >&2; exit 2\n";
    let (code, _, stderr) = output(command(&dataflow, &[("uv", failing)], &["build", "--uv"]));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("the Python environment of node `node` was not made")
            && stderr.contains("no space")
            && stderr.contains("test.yml:1: `build: pip install broken`"),
        "{stderr}"
    );
}

#[test]
fn clean_removes_the_environments_of_one_file() {
    let dataflow = conflicting();
    assert_eq!(with_uv(&dataflow, &["build", "--uv"]).0, Some(0));
    let folder = dataflow.folder().join(".nervure");
    let other = folder.join("python/other");
    fs::create_dir(&other).unwrap();
    let (code, said) = with_uv(&dataflow, &["clean"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("removed") && is_gone(&folder.join("python/test")),
        "{said}"
    );
    assert!(other.is_dir());
    fs::remove_dir(other).unwrap();
    assert!(
        with_uv(&dataflow, &["clean"])
            .1
            .contains("there is nothing to remove")
    );
}

fn is_gone(path: &Path) -> bool {
    !path.exists()
}
