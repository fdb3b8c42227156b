"""Executes the guides as written, each from an empty folder.

- A block whose first line is a comment with the name of a file (`# camera.py`, `// src/main.rs`) is that
  file.
- In a `console` block, bash runs the text after `$ `, and the lines below are its output. `^C` among them
  is Ctrl-C, pressed once the lines above it have been printed. `$ echo $?` follows a command that fails.
- `NAME=VALUE` and `export NAME=VALUE` as a command of its own hold for all commands that follow.
- Output is compared line by line. Runs of spaces count as one, any duration matches any other (`1.2 ms`), and
  so do the times in names of log folders. `...` stands for any text within a line, and for any lines on its
  own.
- `<!-- needs: dora -->` before a block: skipped if the active environment has no such command.
- There are no other blocks, and no file that nothing uses, so that nothing in a guide goes unchecked.

The user's home is called `/home/robot` and has a clone of this repository in `nervure`. The environment that
runs this test is active.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

import pytest
from conftest import CAN_BUILD_CPP

REPOSITORY = Path(__file__).parents[1]
GUIDES = {path.stem: path for path in (REPOSITORY / "docs" / "guides").glob("*.md")}
NEED_REAL_TIME = {"real-time"}
NEED_CPP = {"c-nodes", "coming-from-dora", "composition"}
NEED_CURL = {"http-api"}
NEED_NAMESPACES = {"emulated-link", "compare-middlewares", "tune-dds"}
# Guides that run only if NERVURE_GUIDES names them, separated by spaces, and the reason.
ON_REQUEST = {
    "add-a-peer": "it installs a middleware",
    "compare-middlewares": "it installs middlewares",
    "container": "it needs podman, a base image and a wheel",
    "install": "it builds a wheel, which takes minutes",
    "start-at-boot": "it changes the system: only on a machine that is thrown away, with systemd",
    "tune-dds": "it measures for two minutes, and needs Fast DDS",
}
# The domains of the guides.
DOMAINS = ("", "red", "blue")
HOME = "/home/robot"
# Timeout of a command. A wheel takes minutes to build.
COMMAND_SECONDS = 600

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"(?:export )?([A-Z_]+)=(?:\S+|\$\([^()]*\)\S*)")
FILE_NAME = re.compile(r"(?:#|//) ([\w./-]+\.\w+)\n")
DURATION = re.compile(r"(?<![\w.])\d+(\.\d+)? (ns|us|ms|s)\b")
NEEDS = re.compile(r"<!-- needs: ([\w-]+) -->\n$")
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")
RUN = re.compile(r"\b\d{8}T\d{6}Z-\d+\b")
# Cargo, CMake and the key `types` find these files by their place.
FOUND_BY_PLACE = re.compile(r"msgs/.*|CMakeLists\.txt|Cargo\.toml|\.cargo/config\.toml|src/.*")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guide", sorted(GUIDES))
def test_guide(guide: str, home: Path) -> None:
    if guide in ON_REQUEST and guide not in os.environ.get("NERVURE_GUIDES", "").split():
        pytest.skip(f"{ON_REQUEST[guide]} (NERVURE_GUIDES={guide})")
    follow_alone(GUIDES[guide], home)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user with a clone of this repository."""
    home = tmp_path_factory.mktemp("home")
    (home / "nervure").symlink_to(REPOSITORY)
    return home


def require_real_time() -> None:
    """Skips, with the reason, if this user may not schedule by deadline, or drop capabilities."""
    give_up = ["setpriv", "--bounding-set=-sys_nice"]
    tried = subprocess.run([*give_up, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs root, and the right to schedule: {tried.stderr.strip()}")
    deadline = ["chrt", "--deadline", "-T1000000", "-D10000000", "-P10000000", "0", "true"]
    tried = subprocess.run(deadline, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs the right to schedule by deadline: {tried.stderr.strip()}")


def require_namespaces() -> None:
    """Skips, with the reason, if this user may not make network namespaces."""
    tried = subprocess.run(
        ["nervure-linkemu", "run", "--", "true", "---", "true"],
        env=environment(Path.home()),
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot make" in tried.stderr:
        pytest.skip(f"needs the rights to make network namespaces: {tried.stderr.strip()}")


def test_no_two_guides_listen_on_one_port() -> None:
    """Guides run concurrently."""
    used: dict[str, str] = {}
    for name, guide in GUIDES.items():
        text = guide.read_text(encoding="utf-8")
        for port in re.findall(r"--(?:address|listen) 127\.0\.0\.1:(\d+)", text):
            assert used.setdefault(port, name) == name, f"{name} and {used[port]} listen on port {port}"


def test_links_lead_somewhere() -> None:
    for page in (REPOSITORY / "docs").rglob("*.md"):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            linked = page.parent / name if name else page
            assert linked.exists(), f"{page.name} links to {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{page.name} links to {target}"


@dataclass
class Command:
    """A command with its expected output."""

    where: str
    text: str
    expected: list[str] = field(default_factory=list)


def follow_alone(guide: Path, home: Path) -> None:
    """Waits for another run of this guide on this machine, which has dataflows of the same names."""
    lock = Path(tempfile.gettempdir()) / f"nervure-guide-{os.getuid()}-{guide.stem}.lock"
    with lock.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        follow(guide, home)


def follow(guide: Path, home: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"{guide.name} has no blocks"
    assert text.count("```") == 2 * len(blocks), f"{guide.name}: a fence neither opens nor closes a block"
    check_use([block[2] for block in blocks], guide.name)

    if guide.stem in NEED_NAMESPACES:
        require_namespaces()
    if guide.stem in NEED_CPP and not CAN_BUILD_CPP:
        pytest.skip("apt install g++ pkg-config")
    if guide.stem in NEED_CURL and shutil.which("curl") is None:
        pytest.skip("apt install curl")
    if guide.stem in NEED_REAL_TIME:
        require_real_time()
    folder = home / guide.stem
    # A guide that failed has left its folder.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        walk(guide, text, blocks, folder, home)
    finally:
        stop_detached(folder, home)


def stop_detached(folder: Path, home: Path) -> None:
    """Stops dataflows, and processes in `*.pid` files, that a failed guide has left."""
    for file in folder.glob("*.pid"):
        pid = int(file.read_text())
        # The id may belong to another process by now.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"nervure" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)

    def nervure(*arguments: str) -> str:
        process = subprocess.run(
            ["nervure", *arguments], env=environment(home), stdout=subprocess.PIPE, check=True, text=True
        )
        return process.stdout

    for domain in DOMAINS:
        for dataflow in json.loads(nervure("list", "--json", "--domain", domain))["dataflows"]:
            if Path(dataflow.get("folder", "/")).is_relative_to(folder):
                nervure("stop", "--kill", "-d", str(dataflow["keeper"]), "--domain", domain)


def walk(guide: Path, text: str, blocks: list[re.Match[str]], folder: Path, home: Path) -> None:
    exit_code = 0
    variables: dict[str, str] = {}
    for block in blocks:
        where = f"{guide.name}, line {text.count(chr(10), 0, block.start()) + 1}"
        needed = NEEDS.search(text[: block.start()])
        if needed and not (Path(sys.prefix) / "bin" / needed[1]).exists():
            continue
        if block[1] != "console":
            write_file(block[2], where, folder, home)
            continue
        for command in commands(block[2], where):
            is_announced = exit_code == 0 or command.text == "echo $?"
            assert is_announced, f"{command.where}: the guide omits exit code {exit_code} of its last command"
            assigned = ASSIGNMENT.fullmatch(command.text)
            if assigned:
                value = Command(command.where, f'{command.text}\nprintf %s "${assigned[1]}"')
                exit_code, printed = execute(value, exit_code, folder, home, variables)
                variables[assigned[1]] = printed.replace(HOME, str(home))
                continue
            exit_code, printed = execute(command, exit_code, folder, home, variables)
            if not matches(command.expected, printed):
                expected = "\n".join(command.expected)
                pytest.fail(
                    f"{command.where}: $ {command.text}\n--- expected\n{expected}\n--- printed\n{printed}",
                    pytrace=False,
                )
    assert exit_code == 0, f"{guide.name}: the last command ended with {exit_code}"


def check_use(contents: list[str], guide: str) -> None:
    """A command or another file has to name each file."""
    for content in contents:
        name = FILE_NAME.match(content)
        if name and not FOUND_BY_PLACE.fullmatch(name[1]):
            others = (other for other in contents if other is not content)
            assert any(name[1] in other for other in others), f"{guide}: nothing uses the file {name[1]}"


def write_file(content: str, where: str, folder: Path, home: Path) -> None:
    name = FILE_NAME.match(content)
    assert name, f"{where}: expected a console block, or a file whose first line is a comment with its name"
    path = folder / name[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.replace(f"{HOME}/nervure", str(REPOSITORY)).replace(HOME, str(home))
    path.write_text(content, encoding="utf-8")
    if path.name == "Cargo.toml":
        # The tested versions of dependencies.
        shutil.copy(REPOSITORY / "Cargo.lock", path.parent)


def commands(content: str, where: str) -> list[Command]:
    found: list[Command] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            found.append(Command(where, line[2:]))
        else:
            assert found, f"{where}: output without a command"
            found[-1].expected.append(line)
    return found


def execute(
    command: Command, last_exit_code: int, folder: Path, home: Path, variables: dict[str, str]
) -> tuple[int, str]:
    """The exit code and the output."""
    process = subprocess.Popen(
        ["bash", "-c", f"(exit {last_exit_code})\n{command.text}"],
        cwd=folder,
        env=environment(home) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    timer = Timer(COMMAND_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        before_ctrl_c = None
        if "^C" in command.expected:
            before_ctrl_c = command.expected[: command.expected.index("^C")]
        printed = ""
        for line in process.stdout:
            printed += line.replace(str(home), HOME)
            if before_ctrl_c and matches(before_ctrl_c, printed):
                before_ctrl_c = None
                printed += "^C\n"
                os.killpg(process.pid, signal.SIGINT)
        return process.wait(), printed
    finally:
        timer.cancel()


def environment(home: Path) -> dict[str, str]:
    """A user's environment, with Python's active. Rust crates share the build folder of this repository."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("NERVURE_", "XDG_"))}
    real_home = Path.home()
    return ours | {
        "HOME": str(home),
        "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": sys.prefix,
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(real_home / ".cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(real_home / ".rustup")),
        "CARGO_BUILD_BUILD_DIR": str(REPOSITORY / "target"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_TERM_QUIET": "true",
    }


def matches(expected: list[str], printed: str) -> bool:
    pattern = ""
    for line in expected:
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += re.escape(comparable(line)).replace(re.escape("..."), ".*") + r"\n"
    text = "".join(comparable(line) + "\n" for line in printed.splitlines())
    return re.fullmatch(pattern, text) is not None


def comparable(line: str) -> str:
    line = DURATION.sub("<duration>", line)
    line = RUN.sub("<run>", line)
    return " ".join(line.split())
