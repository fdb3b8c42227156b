#!/usr/bin/env python3
"""Builds the APIs for C and C++, Nervure's and dora's, and installs them:
`scripts/native.py FOLDER [--without-dora] [OPTION OF CARGO RUSTC..]`. `--built LIBRARY` installs Nervure's
alone, with a static library that is built already.

FOLDER gets headers and the sources that cxx generates (`include/nervure`), static libraries (`lib`), a file
for pkg-config each (`lib/pkgconfig`), and what CMake's `find_package(Nervure)` reads (`lib/cmake`). No path
in them is absolute: the wheel has such a folder.

A static library depends on no version of glibc until a program is linked with it, so this machine's compilers
do.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
# Each with the folder that dora's own headers stand in, too: some programs name it, most do not.
HEADERS = {
    "bindings/c/include/nervure.h": "",
    "bindings/c/include/nervure.hpp": "",
    "bindings/dora-c/include/node_api.h": "node",
    "bindings/dora-operator-c/include/operator_api.h": "operator",
    "bindings/dora-operator-c/include/operator_types.h": "operator",
}
NERVURE = {"nervure-c": "Nervure nodes in C and C++"}
DORA_C = {
    "dora-node-api-c": "dora's API for C nodes, over Nervure",
    "dora-operator-api-c": "dora's API for C operators, over Nervure",
}
DORA_CXX = {
    "dora-node-api-cxx": "dora's API for C++ nodes, over Nervure",
    "dora-operator-api-cxx": "dora's API for C++ operators, over Nervure",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    if options[:1] == ["--built"]:
        [library] = options[1:]
        install_nervure(folder, Path(library))
        return 0
    packages = dict(NERVURE)
    is_with_dora = "--without-dora" not in options
    options = [option for option in options if option != "--without-dora"]
    if is_with_dora:
        packages |= DORA_C
        if has_cxx_compiler(options):
            packages |= DORA_CXX
    include, library = make_folders(folder)
    copy_headers(include, with_dora=is_with_dora)
    for package, what in packages.items():
        version = install(package, options, include, library)
        # The library's name is the same with underscores.
        name = "nervure" if package in NERVURE else package
        describe(library, name, what, version)
    return 0


def install_nervure(folder: Path, built: Path) -> None:
    """Installs Nervure's own headers and a library that was built already."""
    include, library = make_folders(folder)
    copy_headers(include, with_dora=False)
    strip(Path(shutil.copy(built, library)), "strip")
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)
    assert version, "the workspace has a version"
    describe(library, "nervure", NERVURE["nervure-c"], version[1])


def make_folders(folder: Path) -> tuple[Path, Path]:
    """The folders of headers and of libraries."""
    include, library = folder / "include" / "nervure", folder / "lib"
    for created in (include, library / "pkgconfig", library / "cmake" / "Nervure"):
        created.mkdir(parents=True, exist_ok=True)
    return include, library


def copy_headers(include: Path, *, with_dora: bool) -> None:
    for header, place in HEADERS.items():
        if place and not with_dora:
            continue
        shutil.copy(REPOSITORY / header, include)
        if place:
            (include / place).mkdir(exist_ok=True)
            shutil.copy(REPOSITORY / header, include / place)


def describe(library: Path, name: str, what: str, version: str) -> None:
    """Writes what pkg-config, and for Nervure's own library CMake, read."""
    (library / "pkgconfig" / f"{name}.pc").write_text(pkg_config(name, what, version))
    if name == "nervure":
        for template in (REPOSITORY / "bindings/c/cmake").iterdir():
            text = template.read_text().replace("@VERSION@", version)
            (library / "cmake" / "Nervure" / template.name).write_text(text)


def install(package: str, options: list[str], include: Path, library: Path) -> str:
    """Builds a package, and copies its static library and what cxx generated for it. Returns its version."""
    version = ""
    for message in built(package, options):
        # A dependency may be one of the others, with a static library that is named after its build.
        if package_of(message) != package:
            continue
        version = message["package_id"].rpartition("@")[2]
        for artifact in message.get("filenames", []):
            if artifact.endswith(".a"):
                copied = Path(shutil.copy(artifact, library))
                if not {"--release", "--profile"}.isdisjoint(options):
                    strip(copied, tool_for_target("strip", options))
        if message["reason"] == "build-script-executed":
            install_bridge(package, Path(message["out_dir"]) / "cxxbridge", include)
    return version


def strip(library: Path, tool: str) -> None:
    """Removes debug information: that of Rust's standard library is half of the file."""
    if shutil.which(tool):
        subprocess.run([tool, "--strip-debug", library], check=True)


def has_cxx_compiler(options: list[str]) -> bool:
    """Whether C++ can be compiled for the target."""
    compiler = tool_for_target("c++", options)
    found = shutil.which(compiler) is not None or "CXX" in os.environ
    if not found:
        print(f"note: the C++ API is left out: there is no {compiler}", file=sys.stderr)
    return found


def tool_for_target(tool: str, options: list[str]) -> str:
    """The name of a tool. That for another processor has the processor's name."""
    target = options[options.index("--target") + 1] if "--target" in options else ""
    processor = target.partition("-")[0] or platform.machine()
    if processor == platform.machine():
        return tool
    return f"{processor}-linux-gnu-{'g++' if tool == 'c++' else tool}"


def built(package: str, options: list[str]) -> list[dict[str, Any]]:
    """Builds the static library of a package. Returns the messages of cargo, which name the files."""
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "rustc", "--locked", "--message-format=json-render-diagnostics", *options]
    # Of this kind alone: beside another, cargo does not optimise the library as a whole, and it is larger.
    command += ["--package", package, "--lib", "--crate-type", "staticlib"]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def package_of(message: dict[str, Any]) -> str:
    """The package's name: an id is `path+file:///a/bindings/dora-c#dora-node-api-c@1.1.0`."""
    return message.get("package_id", "").partition("#")[2].partition("@")[0]


def install_bridge(package: str, generated: Path, include: Path) -> None:
    name = package.removesuffix("-cxx")
    for kind, extension in (("include", "h"), ("sources", "cc")):
        source = generated / kind / package / "src" / f"lib.rs.{extension}"
        if source.exists():
            shutil.copy(source, include / f"{name}.{extension}")


def pkg_config(name: str, what: str, version: str) -> str:
    return f"""prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include/nervure
libdir=${{prefix}}/lib

Name: {name}
Description: {what}
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -l{name.replace("-", "_")} -lm -ldl -lpthread
"""


if __name__ == "__main__":
    sys.exit(main())
