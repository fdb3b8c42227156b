#!/usr/bin/env python3
"""Builds a tarball and a Debian package with the command and the library for C and C++:
`scripts/packages.py FOLDER [--command FILE] [--library FILE] [--compression LEVEL]`.

Both hold `bin/nervure`, headers, the static library, and files for pkg-config and CMake without absolute
paths, so that the tarball runs from any folder. `--command` and `--library` take already built files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
CARGO = os.environ.get("CARGO", "cargo")
# Debian's names of processors.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "armhf"}
LICENCE_FILES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
RULE = "-" * 80


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="Write both files into this folder")
    parser.add_argument("--command", type=Path, help="Use this program (default: build it)")
    parser.add_argument("--library", type=Path, help="Use this static library (default: build it)")
    parser.add_argument(
        "--compression", type=int, choices=range(10), default=6, help="Level of both (default: 6)"
    )
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    machine = os.uname().machine
    with tempfile.TemporaryDirectory() as scratch:
        metadata = cargo_metadata()
        version = next(it["version"] for it in metadata["packages"] if it["name"] == "nervure-cli")
        prefix = Path(scratch) / f"nervure-{version}-linux-{machine}"
        install(prefix, arguments, metadata)
        tarball = arguments.folder / f"{prefix.name}.tar.gz"
        with tarfile.open(tarball, "w:gz", compresslevel=arguments.compression) as archive:
            archive.add(prefix, prefix.name, filter=owned_by_root)
        print(tarball)
        if shutil.which("dpkg-deb") is None:
            sys.exit("note: no Debian package is built: there is no dpkg-deb")
        architecture = ARCHITECTURES[machine]
        package = arguments.folder / f"nervure_{version}_{architecture}.deb"
        build_debian(prefix, package, version, architecture, arguments.compression)
        print(package)


def install(prefix: Path, arguments: argparse.Namespace, metadata: dict) -> None:
    """Installs command, library, and licences below the prefix."""
    command = arguments.command
    if command is None:
        build = [CARGO, "build", "--profile", "dist", "--locked", "--package", "nervure-cli"]
        subprocess.run(build, cwd=REPOSITORY, check=True)
        command = Path(metadata["target_directory"]) / "dist" / "nervure"
    program = prefix / "bin" / "nervure"
    program.parent.mkdir(parents=True)
    shutil.copyfile(command, program)
    program.chmod(0o755)
    subprocess.run(["strip", program], check=True)
    built = ["--without-dora", "--quiet", "--profile", "dist"]
    if arguments.library:
        built = ["--built", arguments.library]
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "native.py", prefix, *built], check=True)
    documents = prefix / "share" / "doc" / "nervure"
    documents.mkdir(parents=True)
    shutil.copyfile(REPOSITORY / "CHANGELOG.md", documents / "CHANGELOG.md")
    (documents / "copyright").write_text(licences(metadata), encoding="utf-8")


def cargo_metadata() -> dict:
    """The metadata of all packages; `cargo tree` selects among them."""
    command = [CARGO, "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def licences(metadata: dict) -> str:
    """The licences of Nervure and of the crates that are linked into its programs."""
    manifests = {(it["name"], it["version"]): Path(it["manifest_path"]) for it in metadata["packages"]}
    tree = [CARGO, "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{l}"]
    tree += ["--package", "nervure-cli", "--package", "nervure-c"]
    listed = subprocess.run(tree, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True).stdout
    crates: list[str] = []
    # Many crates have the same text.
    texts: dict[str, str] = {}
    users: dict[str, list[str]] = defaultdict(list)
    for line in sorted(set(listed.splitlines())):
        about, _, licence = line.partition("|")
        if not about or about.startswith("nervure") or "(" + str(REPOSITORY) in about:
            continue
        name, version = about.split()[:2]
        crates.append(f"{name} {version.removeprefix('v')}: {licence}")
        folder = manifests[name, version.removeprefix("v")].parent
        for file in sorted(folder.iterdir()):
            if file.is_file() and LICENCE_FILES.match(file.name):
                text = file.read_text(encoding="utf-8", errors="replace").strip()
                digest = hashlib.sha256("".join(text.split()).encode()).hexdigest()
                texts[digest] = text
                users[digest].append(name)
    own = (REPOSITORY / "LICENSE").read_text(encoding="utf-8").strip()
    parts = [f"Nervure is under the Apache License, version 2.0:\n\n{own}"]
    parts.append("The programs and the library contain these crates:\n\n" + "\n".join(crates))
    parts += [
        f"Of {', '.join(dict.fromkeys(users[digest]))}:\n\n{text}"
        for digest, text in sorted(texts.items(), key=lambda it: users[it[0]])
    ]
    return f"\n\n{RULE}\n\n".join(parts) + "\n"


def build_debian(prefix: Path, package: Path, version: str, architecture: str, compression: int) -> None:
    """Builds a Debian package with the same files below /usr."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        shutil.copytree(prefix, root / "usr")
        control = root / "DEBIAN"
        control.mkdir()
        files = [path for path in root.rglob("*") if path.is_file()]
        kilobytes = sum(path.stat().st_size for path in files) // 1024
        (control / "control").write_text(
            f"Package: nervure\n"
            f"Version: {version}\n"
            f"Architecture: {architecture}\n"
            f"Maintainer: {maintainer()}\n"
            f"Depends: libc6 (>= {glibc_of(files)}), libgcc-s1\n"
            "Suggests: g++, pkgconf, cmake\n"
            f"Installed-Size: {kilobytes}\n"
            "Section: science\n"
            "Priority: optional\n"
            "Description: dataflow middleware for robots\n"
            " The command that runs dataflows: programs that exchange images, point clouds and\n"
            " other samples through shared memory on one machine, and over lossy links between\n"
            " machines. With the headers and the static library for nodes in C and C++.\n"
        )
        sums = [
            f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
            for path in sorted(files)
        ]
        (control / "md5sums").write_text("".join(sums))
        for path in root.rglob("*"):
            is_program = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if is_program else 0o644)
        root.chmod(0o755)
        # Debian 11 cannot read zstd.
        options = ["--root-owner-group", "-Zxz", f"-z{compression}"]
        subprocess.run(
            ["dpkg-deb", *options, "--build", root, package], check=True, stdout=subprocess.DEVNULL
        )


def maintainer() -> str:
    """The maintainer of Debian's environment variables, or else the author of the newest commit."""
    if "DEBFULLNAME" in os.environ and "DEBEMAIL" in os.environ:
        return f"{os.environ['DEBFULLNAME']} <{os.environ['DEBEMAIL']}>"
    command = ["git", "log", "-1", "--format=%an <%ae>"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "Nervure <nervure@localhost>"


def glibc_of(files: list[Path]) -> str:
    """The version of glibc that the command needs."""
    [command] = [path for path in files if path.parent.name == "bin"]
    found = re.findall(rb"GLIBC_2\.(\d+)", command.read_bytes())
    return f"2.{max(int(minor) for minor in found)}"


def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


if __name__ == "__main__":
    main()
