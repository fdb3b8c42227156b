"""What `nervure new` makes runs, and passes its own tests, as it is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "NERVURE_LOG_DIR": str(cwd / "logs"), "PATH": path}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


def checked(*command: str, cwd: Path) -> str:
    finished = run(*command, cwd=cwd)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


def test_python_project(tmp_path: Path) -> None:
    told = checked("nervure", "new", "follower", cwd=tmp_path)
    assert "made follower" in told
    assert "pip install pytest" in told, "nothing else in the project needs it"
    project = tmp_path / "follower"
    checked("python", "-m", "pytest", "-q", cwd=project)
    told = checked("nervure", "new", "--kind", "node", "extra", cwd=project)
    assert "path: extra.py" in told
    flow = (project / "dataflow.yml").read_text()
    node = "  - id: extra\n    path: extra.py\n    inputs: {input: camera/image}\n    outputs: [output]\n"
    (project / "dataflow.yml").write_text(flow + node)
    told = checked("nervure", "run", "--stop-after", "1s", "dataflow.yml", cwd=project)
    assert "camera/image -> extra/input" in told


@pytest.mark.skipif(shutil.which("cargo") is None, reason="a Rust project is built by cargo")
def test_rust_project(tmp_path: Path) -> None:
    checked(
        "nervure", "new", "--language", "rust", "--nervure", str(REPOSITORY), "line-follower", cwd=tmp_path
    )
    project = tmp_path / "line-follower"
    checked("nervure", "new", "--language", "rust", "--kind", "node", "extra", cwd=project)
    checked("cargo", "test", "--quiet", cwd=project)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["Robot One"], "cannot be the name"),
        (["there"], "there is a `there` already"),
        (["--kind", "node", "--language", "rust", "x"], "no Cargo.toml here"),
        (["--language", "rust", "--nervure", "/nowhere", "x"], "no clone of Nervure's repository"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "there").mkdir()
    finished = run("nervure", "new", *arguments, cwd=tmp_path)
    assert finished.returncode == 2
    assert told in finished.stderr
    assert "\nhint: " in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
