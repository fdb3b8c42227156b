"""Every pair of Rust, Python, C and C++ on one edge: each writes all vectors, and each reads all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_c import native

REPOSITORY = Path(__file__).parents[1]
VECTORS = Path(__file__).parent / "vectors"
LANGUAGES = ["c", "python", "rust", "xx"]
SANITIZERS = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="session")
def rust_node() -> Path:
    """Builds the node with the features of the Rust tests, to share their build."""
    build = ["cargo", "build", "--locked", "--quiet", "--workspace", "--all-features", "--examples"]
    built = subprocess.run(
        [*build, "--message-format=json"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True, text=True
    )
    messages = map(json.loads, built.stdout.splitlines())
    programs = [Path(message["executable"]) for message in messages if message.get("executable")]
    [program] = [program for program in programs if program.name == "vector_node"]
    return program


@pytest.mark.parametrize("options", [[], SANITIZERS], ids=["plain", "sanitized"])
def test_each_language_reads_what_each_writes(
    installed: Path, rust_node: Path, tmp_path: Path, options: list[str]
) -> None:
    subprocess.run([sys.executable, VECTORS / "vectors.py", tmp_path], check=True)
    sources = {
        "c": ["cc", "-std=c11", str(VECTORS / "node.c")],
        "xx": ["c++", "-std=c++17", str(VECTORS / "node.cc")],
    }
    programs = {
        language: str(native(installed, tmp_path / language, *sources[language], *options))
        for language in sources
    }
    programs |= {"rust": str(rust_node), "python": str(VECTORS / "node.py")}
    # Lossless: Python sends at another pace than the others.
    edge = {"queue_policy": "block"}
    sources_of_readers = {language: {"source": f"write-{language}/out", **edge} for language in LANGUAGES}
    sources_of_readers["damaged"] = {"source": "damage/out", **edge}
    nodes = [{"id": "damage", "path": programs["rust"], "args": "damage", "outputs": ["out"]}]
    for language, program in programs.items():
        nodes.append({"id": f"write-{language}", "path": program, "args": "write", "outputs": ["out"]})
        nodes.append(
            {"id": f"read-{language}", "path": program, "args": "read", "inputs": sources_of_readers}
        )
    (tmp_path / "dataflow.yml").write_text(json.dumps({"nodes": nodes}))
    environment = {**os.environ, "NERVURE_LOG_DIR": str(tmp_path / "logs")}
    command = [Path(sys.executable).parent / "nervure", "run", "dataflow.yml"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    printed = run.stdout + run.stderr
    assert run.returncode == 0, printed
    assert "wrong" not in printed, printed
    lines = (tmp_path / "vectors").read_text().splitlines()
    custom = sum(" custom " in line for line in lines)
    for reader in LANGUAGES:
        for writer in LANGUAGES:
            # Only Python sends types that only NumPy has.
            count = len(lines) - (0 if writer == "python" else custom)
            assert f"{count} of {writer} are right" in said(run.stdout, f"read-{reader}"), printed
    verdicts = {reader: (tmp_path / f"verdicts-{reader}").read_text().splitlines() for reader in LANGUAGES}
    for reader in LANGUAGES:
        different = set(verdicts[reader]) ^ set(verdicts["rust"])
        assert not different, f"{reader} and Rust differ about damaged samples: {sorted(different)[:20]}"
    refused = sum(line.endswith(" refused") for line in verdicts["rust"])
    assert refused > 300 and len(verdicts["rust"]) - refused > 300, verdicts["rust"]


def said(printed: str, node: str) -> list[str]:
    """The lines that a node printed."""
    lines = (line.split("|", 1) for line in printed.splitlines() if "|" in line)
    return [line.strip() for name, line in lines if name.strip() == node]
