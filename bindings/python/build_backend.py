"""Build backend of the package: builds module, command and library for C, and lets maturin make the wheel.

maturin builds one crate into a wheel, here the extension module. The command is another crate, and its binary
goes into the wheel as a script, by `data` in `pyproject.toml`.

`NERVURE_CARGO_OPTIONS` replaces the options of `cargo build`, by default `--release` and the crates.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import maturin
from maturin import (  # noqa: F401  (hooks that need no command)
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

Settings = dict[str, Any] | None

HERE = Path(__file__).parent
SCRIPTS = HERE / "data" / "scripts"
WORKSPACE = HERE.parents[1]
DEFAULT_OPTIONS = "--release --package nervure-cli --package nervure-python"


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel with the module and the command, both in release mode by default."""
    built = build()
    install(built / "nervure", SCRIPTS / "nervure")
    # Cargo's folder of the profile `dev` is `debug`.
    profile = "dev" if built.name == "debug" else built.name
    return maturin.build_wheel(
        directory, {**(settings or {}), "build-args": f"--profile {profile}"}, metadata
    )


def get_requires_for_build_editable(settings: Settings = None) -> list[str]:
    """Return the packages that `build_editable` imports, beside those of every build."""
    return [*maturin.get_requires_for_build_editable(settings), "wheel>=0.42"]


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel that refers to the Python sources in place.

    All comes from one build, so that no dependency is compiled twice. maturin would build the module alone,
    with other features of the dependencies. The API for C and C++ is in it if the build has `nervure-c`.
    """
    from wheel.wheelfile import WheelFile

    built = build()
    install(built / "lib_native.so", HERE / "python" / "nervure" / "_native.abi3.so")
    with tempfile.TemporaryDirectory() as scratch:
        content = Path(scratch)
        # maturin requires the folder.
        SCRIPTS.parent.mkdir(exist_ok=True)
        information = maturin.prepare_metadata_for_build_wheel(scratch, settings)
        name = information.removesuffix(".dist-info")
        (content / "nervure.pth").write_text(f"{HERE / 'python'}\n")
        install(built / "nervure", content / f"{name}.data" / "scripts" / "nervure")
        if (library := built / "libnervure.a").exists():
            native = [sys.executable, WORKSPACE / "scripts" / "native.py", content / f"{name}.data" / "data"]
            subprocess.run([*native, "--built", library], check=True)
        tags = (content / information / "WHEEL").read_text()
        [tag] = [line.removeprefix("Tag: ") for line in tags.splitlines() if line.startswith("Tag: ")]
        file = f"{name}-{tag}.whl"
        with WheelFile(Path(directory) / file, "w") as wheel:
            wheel.write_files(scratch)
    return file


def build_sdist(directory: str, settings: Settings = None) -> str:
    """Fail: a source archive would hold the module's crates, but not the command's."""
    raise SystemExit("nervure has no source archive: install a wheel, or from the repository")


def build() -> Path:
    """Build module and command; return the folder with both."""
    options = os.environ.get("NERVURE_CARGO_OPTIONS", DEFAULT_OPTIONS)
    command = [os.environ.get("CARGO", "cargo"), "build", "--locked", *shlex.split(options)]
    command += ["--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=WORKSPACE, check=True, stdout=subprocess.PIPE)
    messages = (json.loads(line) for line in done.stdout.splitlines())
    programs = [Path(message["executable"]) for message in messages if message.get("executable")]
    [program] = [program for program in programs if program.name == "nervure"]
    return program.parent


def install(source: Path, target: Path) -> None:
    """Copy a program or library to a new file: processes that run the old one keep it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(source, target)
