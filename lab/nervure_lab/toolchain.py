"""Builds and installs the requirements of the adapters, inside the checkout: one cargo workspace, and one
Python environment for each peer, so that their pinned versions cannot conflict.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nervure_lab.contract import Unavailable

LAB_DIRECTORY = Path(__file__).parent.parent
REPOSITORY_DIRECTORY = LAB_DIRECTORY.parent
PROGRAMS_DIRECTORY = LAB_DIRECTORY / "programs"
PROFILE = "dist"
"""The profile in which Nervure is measured: linked as a whole, as in its packages."""
BUILT = os.environ.get("NERVURE_LAB_PROGRAMS")
"""The folder of Nervure's programs if they are built already: for tests of the lab, which measure nothing."""
PROGRAMS_OF_NERVURE = Path(BUILT) if BUILT else REPOSITORY_DIRECTORY / "target" / PROFILE
IN_CHECKOUT = (LAB_DIRECTORY / "pyproject.toml").exists()
"""Whether the lab runs from its checkout; otherwise it is installed."""
ENVIRONMENTS_DIRECTORY = (
    LAB_DIRECTORY / ".venv-peers" if IN_CHECKOUT else Path.home() / ".cache" / "nervure-lab" / "peers"
)


class Toolchain:
    """Builds and installs each thing at most once a session."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """For files of this session; removed at its end."""
        self._built: set[str] = set()

    def workspace_program(self, package: str, program: str) -> Path:
        """The binary of a package of Nervure itself."""
        return self._workspace_build(package, program, [])

    def workspace_example(self, package: str, example: str) -> Path:
        """The binary of an example of a package of Nervure itself."""
        return self._workspace_build(package, f"examples/{example}", ["--example", example])

    def _workspace_build(self, package: str, binary: str, options: Sequence[str]) -> Path:
        if not BUILT and binary not in self._built:
            command = ["cargo", "build", "--profile", PROFILE, "--locked", "--quiet", "--package", package]
            command += options
            run_tool(command, cwd=REPOSITORY_DIRECTORY)
            self._built.add(binary)
        return PROGRAMS_OF_NERVURE / binary

    def rust_program(self, package: str, program: str = "") -> Path:
        """The release binary of a package of ``lab/programs``, with the name of the package or another."""
        if not IN_CHECKOUT:
            raise Unavailable("its program is built in a checkout of Nervure")
        if package not in self._built:
            run_tool(["cargo", "build", "--release", "--package", package], cwd=PROGRAMS_DIRECTORY)
            self._built.add(package)
        return PROGRAMS_DIRECTORY / "target" / "release" / (program or package)

    def cpp_program(self, peer: str, sources: Sequence[str | Path], options: Sequence[str | Path]) -> Path:
        """A C++ program of sources in ``lab/programs``, in the environment of its peer, with the name of the
        first one.
        """
        if not IN_CHECKOUT:
            raise Unavailable("its program is built in a checkout of Nervure")
        program = self.environment(peer) / Path(sources[0]).stem
        if str(program) not in self._built:
            # Running sessions keep the old program.
            new = program.with_suffix(f".{os.getpid()}")
            paths = [PROGRAMS_DIRECTORY / source for source in sources]
            run_tool(["g++", "-std=c++17", "-O2", *paths, "-o", new, "-pthread", *options])
            new.rename(program)
            self._built.add(str(program))
        return program

    def native_api(self) -> list[str]:
        """Installs Nervure's API for C and C++; returns the options of a compiler that use it."""
        folder = self.directory / "development"
        script = REPOSITORY_DIRECTORY / "scripts" / "native.py"
        options: list[str | Path] = ["--without-dora", "--profile", PROFILE]
        if BUILT:
            options = ["--built", PROGRAMS_OF_NERVURE / "libnervure.a"]
        run_tool([sys.executable, script, folder, *options])
        search = f"PKG_CONFIG_PATH={folder / 'lib' / 'pkgconfig'}"
        return run_tool(["env", search, "pkg-config", "--cflags", "--libs", "nervure"]).split()

    def environment(self, peer: str) -> Path:
        """The folder of a peer's installed and built files."""
        directory = ENVIRONMENTS_DIRECTORY / peer
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def python_environment(
        self, name: str, requirements: Sequence[str], base: str | Path = sys.executable
    ) -> Path:
        """The interpreter of an environment with exactly these requirements, made with another one."""
        directory = ENVIRONMENTS_DIRECTORY / name
        directory.parent.mkdir(parents=True, exist_ok=True)
        python = directory / "bin" / "python"
        stamp = directory / "requirements.json"
        wanted = json.dumps([sys.version if base == sys.executable else str(base), *requirements])
        if not stamp.exists() or stamp.read_text() != wanted:
            run_tool([base, "-m", "venv", "--clear", directory])
            run_tool(
                [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
            )
            stamp.write_text(wanted)
        return python


def fastdds_version() -> str:
    """The version of the system's Fast DDS; raises ``Unavailable`` without it."""
    headers = [
        *Path("/usr/include").glob("fastrtps/config.h"),
        *Path("/usr/include").glob("*/fastrtps/config.h"),
    ]
    if not headers or shutil.which("g++") is None:
        raise Unavailable("not installed: apt install g++ libfastrtps-dev libfastcdr-dev")
    found = re.search(r'define FASTRTPS_VERSION_STR "(.*)"', headers[0].read_text())
    return found.group(1) if found else "unknown"


def python_versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """The installed versions of some packages, and of the interpreter."""
    program = (
        "import importlib.metadata, json, platform, sys; "
        "print(json.dumps({'python': platform.python_version(), "
        "**{name: importlib.metadata.version(name) for name in sys.argv[1:]}}))"
    )
    versions: dict[str, str] = json.loads(run_tool([python, "-c", program, *packages]))
    return versions


def crate_versions(crates: Sequence[str]) -> dict[str, str]:
    """The locked versions of some crates of ``lab/programs``, and of the compiler."""
    lock = (PROGRAMS_DIRECTORY / "Cargo.lock").read_text()
    versions = {"rustc": run_tool(["rustc", "--version"]).split()[1]}
    for crate in crates:
        found = re.search(rf'name = "{re.escape(crate)}"\nversion = "([^"]+)"', lock)
        versions[crate] = found.group(1) if found else "unknown"
    return versions


def run_tool(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Runs at low priority: a build must not disturb other work on the machine."""
    words = [str(part) for part in command]
    try:
        finished = subprocess.run(
            words, cwd=cwd, capture_output=True, text=True, check=True, preexec_fn=lambda: os.nice(10)
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{words[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise Unavailable(
            f"`{' '.join(words[:6])}` failed: {lines[-1] if lines else error.returncode}"
        ) from error
    return finished.stdout


def try_emulator(emulator: Path) -> None:
    """Runs the emulated link for a moment; raises ``Unavailable`` with what to do if it does not run here."""
    trial = subprocess.run(
        [emulator, "run", "--", "true", "---", "true"], capture_output=True, text=True, check=False
    )
    if trial.returncode:
        raise Unavailable(
            f"the emulated link does not run here: {trial.stderr.strip()}. It makes network namespaces: run "
            "as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or in a "
            "container give it --cap-add NET_ADMIN --cap-add SYS_ADMIN --device /dev/net/tun"
        )
