"""Build backend of the package: builds the command `nervure`, then lets maturin build the wheel around it.

maturin builds one crate into a wheel, here the extension module. The command is another crate, and its binary
goes into the wheel as a script, by `data` in `pyproject.toml`.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin
from maturin import (  # noqa: F401  (hooks that need no command)
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

Settings = dict[str, Any] | None

HERE = Path(__file__).parent
SCRIPTS = HERE / "data" / "scripts"


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel with the module and the command, both in release mode."""
    build_command()
    return maturin.build_wheel(directory, settings, metadata)


def build_editable(
    directory: str, settings: dict[str, Any] | None = None, metadata: str | None = None
) -> str:
    """Build a wheel that refers to the Python sources in place."""
    build_command()
    return maturin.build_editable(directory, settings, metadata)


def build_sdist(directory: str, settings: Settings = None) -> str:
    """Fail: a source archive would hold the module's crates, but not the command's."""
    raise SystemExit("nervure has no source archive: install a wheel, or from the repository")


def build_command() -> None:
    """Build the command and put it where maturin finds scripts."""
    workspace = HERE.parents[1]
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "build", "--release", "--locked", "--package", "nervure-cli"]
    subprocess.run(command, cwd=workspace, check=True)
    query = [cargo, "metadata", "--format-version", "1", "--no-deps", "--locked"]
    metadata = json.loads(subprocess.run(query, cwd=workspace, check=True, stdout=subprocess.PIPE).stdout)
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    shutil.copy2(Path(metadata["target_directory"]) / "release" / "nervure", SCRIPTS / "nervure")
