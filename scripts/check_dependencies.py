#!/usr/bin/env python3
"""Checks the dependency rules of ARCHITECTURE.md against `cargo metadata`, and the places of `unsafe`."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Nervure's own, and that of dora's API.
WORKSPACES = [".", "compat/dora"]
# (crate, crates that it must not reach, why)
FORBIDDEN = [
    *[
        (crate, ["tokio", "quinn", "quinn-proto"], "formats and the data plane on one host know no network")
        for crate in (
            "nervure-message",
            "nervure-types",
            "nervure-dataflow",
            "nervure-protocol",
            "nervure-shm",
        )
    ],
    ("nervure-message", ["nervure-shm", "rustix", "libc"], "what a value looks like needs no I/O"),
    # Not libc, which has the SHA-256 of the feature `rihs`.
    ("nervure-types", ["nervure-shm", "rustix"], "a definition needs no I/O"),
    # Not libc, for the same reason.
    ("nervure-dataflow", ["nervure-shm", "rustix"], "a file's meaning needs no I/O"),
    (
        "nervure-protocol",
        ["nervure-shm", "nervure-message", "rustix"],
        "messages know nothing of those who send them",
    ),
    (
        "nervure-shm",
        ["nervure-node", "nervure-dataflow"],
        "the data plane serves nodes, it does not know them",
    ),
    ("nervure-node", ["nervure-keeper", "nervure-dataflow"], "a node knows its edges, not the dataflow"),
    (
        "nervure-link",
        ["nervure-shm", "nervure-node", "nervure-dataflow", "tokio"],
        "the link carries bytes between hosts, from one thread",
    ),
    *[
        (crate, ["nervure-keeper", "nervure-dataflow"], "bindings see the node API alone")
        for crate in (
            "nervure-c",
            "nervure-python",
            "dora-node-api",
            "dora-node-api-c",
            "dora-node-api-cxx",
            "nervure-dora-operators",
            "nervure-host",
        )
    ],
    *[
        (crate, ["nervure-shm", "nervure-message"], "an operator has no edges")
        for crate in (
            "dora-arrow-convert",
            "dora-operator-api",
            "dora-operator-api-c",
            "dora-operator-api-cxx",
        )
    ],
    (
        "nervure-linkemu",
        ["nervure-link", "nervure-shm", "nervure-message", "tokio", "quinn", "quinn-proto"],
        "what is measured does not reach into the ruler",
    ),
    (
        "nervure-recorder",
        ["nervure-keeper", "nervure-dataflow", "tokio"],
        "a recording is of samples, and does not depend on what runs the nodes",
    ),
    (
        "nervure-store",
        ["nervure-shm", "nervure-link", "nervure-dataflow"],
        "a store holds keys and values, whatever they mean",
    ),
    (
        "nervure-http",
        ["nervure-identity", "nervure-store", "nervure-protocol", "nervure-shm"],
        "a connection carries requests, whatever they mean",
    ),
    (
        "nervure-coordinator",
        ["nervure-shm", "nervure-link", "nervure-node", "nervure-dataflow"],
        "the coordinator never touches payloads",
    ),
    ("nervure-daemon", ["nervure-keeper"], "keepers are started by the command, and outlive daemons"),
    ("nervure-identity", ["nervure-link", "nervure-shm"], "keys know nothing of what they protect"),
    (
        "nervure-arrow-import",
        ["nervure-message", "nervure-node"],
        "an array is imported whatever becomes of it",
    ),
    ("nervure-host", ["nervure-node"], "a host loads components, and is no node"),
    ("nervure-keeper", ["nervure-node"], "the keeper wires nodes, it is none"),
    (
        "nervure-launch",
        ["nervure-daemon", "nervure-coordinator", "nervure-link", "tokio", "clap", "crossterm"],
        "a dataflow of one machine is started without a fleet and without a terminal",
    ),
    (
        "nervure-inspect",
        ["nervure-launch", "nervure-recorder", "utoipa-axum", "clap", "crossterm"],
        "every surface shows the same state, which is computed without one",
    ),
    (
        "nervure-fleet",
        ["nervure-launch", "nervure-recorder", "utoipa-axum", "clap", "crossterm"],
        "orders of a fleet are given without a terminal",
    ),
    (
        "nervure-api",
        ["nervure-cli", "nervure-launch", "clap", "crossterm"],
        "the API shows what `inspect` and `fleet` compute, as the command does",
    ),
]
# `unsafe` is allowed in these crates, and in these files of others (starting, reaping, namespaces).
UNSAFE_CRATES = {
    "nervure-arrow-import",
    "nervure-shm",
    "nervure-python",
    "dora-node-api",
    "nervure-c",
    "dora-node-api-c",
    "dora-node-api-cxx",
    "dora-operator-api",
    "dora-operator-api-c",
    "dora-operator-api-cxx",
    "nervure-dora-operators",
    "nervure-host",
}
UNSAFE_FILES = {
    "crates/cli/tests/inject/seccomp.rs",
    "crates/cli/tests/nodes/steady_node.rs",
    "crates/keeper/src/descendants.rs",
    "crates/keeper/src/shell/process.rs",
    "crates/node/src/component.rs",
    "crates/linkemu/src/bin/nervure-linkemu/sys.rs",
}


def main() -> int:
    problems = []
    checked = 0
    known = set()
    for workspace in WORKSPACES:
        metadata = json.loads(
            subprocess.run(
                ["cargo", "metadata", "--format-version", "1", "--locked"],
                cwd=ROOT / workspace,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        found, crates = check(metadata)
        problems += found
        checked += sum(len(targets) for crate, targets, _ in FORBIDDEN if crate in crates)
        known |= crates
    for crate in sorted({crate for crate, _, _ in FORBIDDEN} - known):
        problems.append(f"a rule of {__file__} is about {crate}, which is no crate of the project")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{checked} dependency rules checked, {len(problems)} problems")
    return bool(problems)


def check(metadata: dict) -> tuple[list[str], set[str]]:
    """The problems of a workspace, and its crates."""
    name_of = {package["id"]: package["name"] for package in metadata["packages"]}
    edges = {
        node["id"]: [
            dep["pkg"]
            for dep in node["deps"]
            if any(kind["kind"] in (None, "build") for kind in dep["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
    }
    ids = {name_of[member]: member for member in metadata["workspace_members"]}
    problems = []
    for crate, targets, reason in FORBIDDEN:
        if crate not in ids:
            continue
        path_to = paths(ids[crate], edges)
        for target in targets:
            found = next((path for end, path in path_to.items() if name_of[end] == target), None)
            if found:
                chain = " -> ".join(name_of[step] for step in found)
                problems.append(f"{crate} must not reach {target} ({reason}): {chain}")
    for package in metadata["packages"]:
        if package["id"] in metadata["workspace_members"] and package["name"] not in UNSAFE_CRATES:
            problems += [f"{source}: opts in to unsafe code" for source in opting_in(package)]
    return problems, set(ids)


def paths(start: str, edges: dict[str, list[str]]) -> dict[str, list[str]]:
    """A shortest path from `start` to each crate that it reaches."""
    found = {start: [start]}
    queue = [start]
    while queue:
        current = queue.pop(0)
        for following in edges[current]:
            if following not in found:
                found[following] = [*found[current], following]
                queue.append(following)
    return found


def opting_in(package: dict) -> list[str]:
    folder = pathlib.Path(package["manifest_path"]).parent
    paths = [path for pattern in ("src", "tests", "examples") for path in folder.glob(f"{pattern}/**/*.rs")]
    sources = {str(path.relative_to(ROOT)): path for path in sorted(paths)}
    return [
        name
        for name, path in sources.items()
        if name not in UNSAFE_FILES
        and "test" not in path.stem
        and "(unsafe_code" in path.read_text(encoding="utf-8")
    ]


if __name__ == "__main__":
    sys.exit(main())
