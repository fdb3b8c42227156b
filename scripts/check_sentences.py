#!/usr/bin/env python3
"""Checks the sentences of comments, docstrings and pages: `scripts/check_sentences.py [--list] [PATH..]`.

A sentence names its subject: "The peer's identity is known after the handshake". The script counts lines
with a clause that stands in the place of a noun. Quinn, neqo, uv and iceoryx2 have at most 2 in 1,000 lines
of comments.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MOST_IN_1000 = 5
CLAUSE = re.compile(
    r"""\b(
        what\ (is|are|was|were|has|had|have|it|they|he|she|we|you|one|a|an|the|this|that|these|each|every|its
            |their|both|can|cannot|could|may|might|must|should|will|would|does|did|do|comes|came|becomes|became|remains|follows)
        | which\ of\ (them|these|those|the)
        | who | whoever
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
RUST_COMMENT = re.compile(r"^\s*//[/!]?\s?(.*)")
C_COMMENT = re.compile(r"^\s*(?://[/!]?|/\*+|\*(?!/))\s?(.*)")

Line = tuple[int, str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every line that counts")
    parser.add_argument("paths", nargs="*", default=["."], help="files or folders; default: all")
    arguments = parser.parse_args()
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *arguments.paths]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    lines, counted = 0, []
    for name in listed.stdout.splitlines():
        for number, text in lines_of(REPOSITORY / name):
            lines += 1
            if CLAUSE.search(text):
                counted.append(f"{name}:{number}: {text.strip()}")
    in_1000 = 1000 * len(counted) / max(lines, 1)
    if arguments.list or in_1000 > MOST_IN_1000:
        print("\n".join(counted))
    print(f"{len(counted)} of {lines} lines of prose ({in_1000:.1f} in 1,000) have a clause without a noun")
    if in_1000 > MOST_IN_1000:
        wanted = "begin with the thing, and let its verb follow"
        print(f"error: expected at most {MOST_IN_1000} in 1,000: {wanted}", file=sys.stderr)
        return 1
    return 0


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of prose of a file."""
    reader = READERS.get(path.suffix)
    return reader(path.read_text()) if reader and path.is_file() else iter(())


def commented(pattern: re.Pattern[str]):
    def read(text: str) -> Iterator[Line]:
        for number, line in enumerate(text.splitlines(), 1):
            if found := pattern.match(line):
                yield number, found[1]

    return read


def python(text: str) -> Iterator[Line]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            for offset, line in enumerate(value.value.splitlines()):
                if line.strip():
                    yield node.lineno + offset, line


def markdown(text: str) -> Iterator[Line]:
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif line.strip() and not is_code:
            yield number, line


READERS = {
    ".rs": commented(RUST_COMMENT),
    ".c": commented(C_COMMENT),
    ".cc": commented(C_COMMENT),
    ".h": commented(C_COMMENT),
    ".hpp": commented(C_COMMENT),
    ".py": python,
    ".pyi": python,
    ".md": markdown,
}

if __name__ == "__main__":
    sys.exit(main())
