#!/usr/bin/env python3
"""Checks the build for unintended growth: `scripts/check_build_size.py [PROGRAM]`.

Compares with `scripts/build_size.json` the number of crates in the default build of the command and, with
PROGRAM, the size of this program without symbols: `target/debug/nervure`, which `make test` builds. Growth by
more than 5 % is an error until the file has the new figures and, in `reasons`, a line that says why.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
RECORD = REPOSITORY / "scripts" / "build_size.json"
MOST_GROWTH = 1.05


def main() -> int:
    recorded = json.loads(RECORD.read_text())
    measured = {"crates": count_crates()}
    if sys.argv[1:]:
        measured["program_bytes"] = stripped_bytes(Path(sys.argv[1]))
    grown = False
    for name, now in measured.items():
        print(f"{name}: {now} ({recorded[name]} recorded)")
        if now > recorded[name] * MOST_GROWTH:
            print(
                f"error: {name} grew from {recorded[name]} to {now}, by more than 5 %\n"
                f"hint: use less, or write {now} and the reason into {RECORD.relative_to(REPOSITORY)}",
                file=sys.stderr,
            )
            grown = True
    return 1 if grown else 0


def count_crates() -> int:
    """The number of crates that a default build of the command compiles, including those of build scripts."""
    tree = [os.environ.get("CARGO", "cargo"), "tree", "--locked", "--package", "nervure-cli"]
    tree += ["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    done = subprocess.run(tree, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return len({line.split(" (")[0] for line in done.stdout.splitlines() if line})


def stripped_bytes(program: Path) -> int:
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "-o", stripped.name, program], check=True)
        return Path(stripped.name).stat().st_size


if __name__ == "__main__":
    sys.exit(main())
