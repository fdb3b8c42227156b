"""Projects of `nervure new` run, and pass their own tests, without changes."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "NERVURE_LOG_DIR": str(cwd / "logs"),
        "PATH": path,
        # Rust crates share the build folder of this repository.
        "CARGO_BUILD_BUILD_DIR": str(REPOSITORY / "target"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        # The tests check the build and the run, not the speed.
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
    }
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


def checked(*command: str, cwd: Path) -> str:
    finished = run(*command, cwd=cwd)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


def test_python_project(tmp_path: Path) -> None:
    output = checked("nervure", "new", "follower", cwd=tmp_path)
    assert "created follower" in output
    assert "pip install pytest" in output, "nothing else in the project needs it"
    project = tmp_path / "follower"
    checked("python", "-m", "pytest", "-q", cwd=project)
    output = checked("nervure", "new", "--kind", "node", "extra", cwd=project)
    assert "path: extra.py" in output
    flow = (project / "dataflow.yml").read_text()
    node = "  - id: extra\n    path: extra.py\n    inputs: {input: camera/image}\n    outputs: [output]\n"
    (project / "dataflow.yml").write_text(flow + node)
    output = checked("nervure", "run", "--stop-after", "4s", "dataflow.yml", cwd=project)
    assert "camera/image -> extra/input" in output


def test_python_project_is_known_to_its_tools(tmp_path: Path) -> None:
    checked("nervure", "new", "follower", cwd=tmp_path)
    project = tmp_path / "follower"
    first, _ = (project / "dataflow.yml").read_text().split("\n", 1)
    assert first == "# yaml-language-server: $schema=dataflow.schema.json"
    schema = (project / "dataflow.schema.json").read_text()
    assert json.loads(schema) == json.loads(checked("nervure", "schema", cwd=project))
    # pip can read the file, and the project depends on the installed version.
    pip = ("python", "-m", "pip", "--disable-pip-version-check")
    checked(*pip, "install", "--quiet", "--dry-run", "--no-deps", ".", cwd=project)
    version = importlib.metadata.version("nervure")
    assert f'dependencies = ["nervure~={version}", "numpy"]' in (project / "pyproject.toml").read_text()


@pytest.mark.skipif(shutil.which("cargo") is None, reason="a Rust node is built by cargo")
def test_rust_node_in_a_python_project(tmp_path: Path) -> None:
    checked("nervure", "new", "follower", cwd=tmp_path)
    project = tmp_path / "follower"
    made = run("nervure", "new", "--kind", "node", "--language", "rust", "extra", cwd=project)
    assert f"nervure-node is built from {REPOSITORY / 'crates/node'}" in made.stderr
    entry = made.stdout[made.stdout.index("  - id: extra") :].replace("NODE/OUTPUT", "camera/image")
    flow = (project / "dataflow.yml").read_text()
    (project / "dataflow.yml").write_text(flow + entry)
    checked("nervure", "build", "dataflow.yml", cwd=project)
    output = checked("nervure", "run", "--stop-after", "4s", "dataflow.yml", cwd=project)
    assert "camera/image -> extra/input" in output


@pytest.mark.skipif(shutil.which("cargo") is None, reason="a Rust project is built by cargo")
def test_rust_project(tmp_path: Path) -> None:
    checked(
        "nervure", "new", "--language", "rust", "--nervure", str(REPOSITORY), "line-follower", cwd=tmp_path
    )
    project = tmp_path / "line-follower"
    checked("nervure", "new", "--language", "rust", "--kind", "node", "extra", cwd=project)
    checked("cargo", "test", "--quiet", cwd=project)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="a project in C or C++ is built by CMake")
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_cmake_project(tmp_path: Path, language: str) -> None:
    """CMake finds headers and library in the active environment."""
    checked("nervure", "new", "--lang", language, "line-follower", cwd=tmp_path)
    project = tmp_path / "line-follower"
    made = checked("nervure", "new", "--lang", language, "--kind", "node", "extra", cwd=project)
    entry = made[made.index("  - id: extra") :].replace("NODE/OUTPUT", "camera/image")
    with (project / "dataflow.yml").open("a") as flow:
        flow.write(entry)
    checked("nervure", "build", "dataflow.yml", cwd=project)
    output = checked("nervure", "run", "--stop-after", "4s", "dataflow.yml", cwd=project)
    assert "camera/image -> extra/input" in output
    assert "show       | 10\n" in output, output
    # In a folder without a project the node gets one of its own.
    checked("nervure", "new", "--lang", language, "--kind", "node", "alone", cwd=tmp_path)
    assert (tmp_path / "alone" / "CMakeLists.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Robot One"], "cannot be the name"),
        (["there"], "`there` exists already"),
        (["--kind", "node", "--language", "rust", "there"], "`there` exists already"),
        (["--language", "rust", "--nervure", "/nowhere", "x"], "no clone of Nervure's repository"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "there").mkdir()
    finished = run("nervure", "new", *arguments, cwd=tmp_path)
    assert finished.returncode == 2
    assert message in finished.stderr
    assert "\nhint: " in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
