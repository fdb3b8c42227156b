"""The wheel holds the module and the command, and both run in an otherwise empty environment."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD

REPOSITORY = Path(__file__).parents[1]
# Built once: all tests of the group run in one process.
pytestmark = pytest.mark.xdist_group("wheel")


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        command, cwd=cwd, env={**ours, **environment}, capture_output=True, text=True, timeout=900
    )


def checked(*command: str | Path, cwd: Path, **environment: str) -> str:
    finished = run(*command, cwd=cwd, **environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def is_editable() -> bool:
    """Whether this environment has the sources in place of a wheel."""
    origin = importlib.metadata.distribution("nervure").read_text("direct_url.json")
    return origin is not None and json.loads(origin).get("dir_info", {}).get("editable", False)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment in which a wheel is installed."""
    if not is_editable():
        return Path(sys.executable).parent
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    # The build backend finds maturin beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "NERVURE_CARGO_OPTIONS": BUILD}
    checked(*pip, *build, str(REPOSITORY / "bindings/python"), cwd=folder, **settings)
    [wheel] = folder.glob("nervure-*.whl")
    checked(sys.executable, "-m", "venv", "environment", cwd=folder)
    programs = folder / "environment" / "bin"
    checked(programs / "python", *pip[1:], "install", wheel, cwd=folder)
    return programs


@pytest.mark.timeout(900)
def test_module_and_command_are_of_one_version(installed: Path, tmp_path: Path) -> None:
    output = checked(installed / "python", "-c", "import nervure; print(nervure.__version__)", cwd=tmp_path)
    version = f"nervure {output}"
    assert checked(installed / "nervure", "--version", cwd=tmp_path) == version
    assert (
        checked(installed / "python", "-m", "nervure", "--version", cwd=tmp_path, PATH="/usr/bin") == version
    )


@pytest.mark.timeout(900)
def test_a_new_project_runs(installed: Path, tmp_path: Path) -> None:
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "NERVURE_LOG_DIR": str(tmp_path / "logs")}
    checked("nervure", "new", "robot", cwd=tmp_path, **settings)
    project = tmp_path / "robot"
    output = checked("nervure", "run", "--stop-after", "4s", "dataflow.yml", cwd=project, **settings)
    assert "show       | 10" in output


def test_a_missing_command_is_told(installed: Path, tmp_path: Path) -> None:
    hide = (
        "import runpy, sysconfig; sysconfig.get_path = lambda *names: '/nowhere'; "
        "runpy.run_module('nervure', run_name='__main__')"
    )
    finished = run(installed / "python", "-c", hide, cwd=tmp_path)
    assert finished.returncode == 1
    assert "error: the command `nervure` is in none of /nowhere, " in finished.stderr
    assert "\nhint: reinstall the package" in finished.stderr
