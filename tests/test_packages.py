"""The tarball and the Debian package: the nodes of the guide for C and C++ are built and run with each."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import CAN_BUILD_CPP

REPOSITORY = Path(__file__).parents[1]
# Built once: all tests of the group run in one process.
pytestmark = pytest.mark.xdist_group("packages")
GUIDE = REPOSITORY / "docs" / "guides" / "c-nodes.md"
FILE = re.compile(r"^```\w+\n(?:#|//) ([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def checked(*command: str | Path, cwd: Path, **environment: str) -> str:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("NERVURE_", "PKG_"))}
    done = subprocess.run(
        command, cwd=cwd, env={**ours, **environment}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both packages by their suffixes, with command and library of this environment."""
    if not CAN_BUILD_CPP:
        pytest.skip("apt install g++ pkg-config")
    folder = tmp_path_factory.mktemp("packages")
    built = ["--command", sys.prefix + "/bin/nervure", "--library", sys.prefix + "/lib/libnervure.a"]
    script = [REPOSITORY / "scripts" / "packages.py", folder, "--compression", "1"]
    printed = checked(sys.executable, *script, *built, cwd=folder)
    files = {Path(line).suffix: Path(line) for line in printed.splitlines()}
    assert list(files) == ([".gz", ".deb"] if shutil.which("dpkg-deb") else [".gz"])
    return files


def build_and_run(prefix: Path, folder: Path) -> None:
    """Builds and runs the nodes of the guide for C and C++, with pkg-config and with CMake."""
    for name, content in FILE.findall(GUIDE.read_text()):
        (folder / name).write_text(content)
    nervure = prefix / "bin" / "nervure"
    assert checked(nervure, "--version", cwd=folder).startswith("nervure ")

    found = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": ""}
    flags = checked("pkg-config", "--cflags", "--libs", "nervure", cwd=folder, **found).split()
    assert f"-L{prefix}" in flags[1].replace("/lib/pkgconfig/../..", ""), flags
    checked("cc", "camera.c", "-o", "camera", *flags, cwd=folder)
    checked("c++", "-std=c++17", "brightness.cpp", "-o", "brightness", *flags, cwd=folder)
    run(nervure, folder)

    if shutil.which("cmake"):
        checked("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=folder)
        checked("cmake", "--build", "build", cwd=folder)
        shutil.copyfile(folder / "dataflow.yml", folder / "build" / "dataflow.yml")
        run(nervure, folder / "build")


def run(nervure: Path, folder: Path) -> None:
    logs = {"NERVURE_LOG_DIR": str(folder / "logs")}
    printed = checked(nervure, "run", "dataflow.yml", "--stop-after", "2s", cwd=folder, **logs)
    assert "brightness 20" in printed


def test_the_tarball_works_in_any_folder(packages: dict[str, Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with tarfile.open(packages[".gz"]) as archive:
        archive.extractall(elsewhere, filter="data")
    [unpacked] = elsewhere.iterdir()
    build_and_run(unpacked, tmp_path)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")
def test_the_debian_package_installs_and_works(packages: dict[str, Path], tmp_path: Path) -> None:
    package = packages[".deb"]
    root = tmp_path / "root"
    if os.geteuid() == 0:
        for folder in ("info", "updates"):
            (root / "var/lib/dpkg" / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        # glibc is not installed in this root.
        dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless"]
        checked(*dpkg, "--install", package, cwd=tmp_path)
        assert "install ok installed" in (root / "var/lib/dpkg/status").read_text()
    else:
        checked("dpkg-deb", "--extract", package, root, cwd=tmp_path)
    build_and_run(root / "usr", tmp_path)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")
def test_the_debian_package_is_described(packages: dict[str, Path], tmp_path: Path) -> None:
    package = packages[".deb"]
    control = checked("dpkg-deb", "--field", package, cwd=tmp_path)
    fields = dict(line.split(": ", 1) for line in control.splitlines() if not line.startswith(" "))
    machine = checked("dpkg", "--print-architecture", cwd=tmp_path).strip()
    assert (fields["Package"], fields["Architecture"]) == ("nervure", machine)
    assert re.fullmatch(r"libc6 \(>= 2\.\d+\), libgcc-s1", fields["Depends"])
    listed = checked("dpkg-deb", "--contents", package, cwd=tmp_path).splitlines()
    assert all(line.split()[1] == "root/root" for line in listed), listed
    checked("dpkg-deb", "--extract", package, tmp_path / "root", cwd=tmp_path)
    checked("dpkg-deb", "--control", package, cwd=tmp_path)
    checked("md5sum", "--quiet", "--check", "../DEBIAN/md5sums", cwd=tmp_path / "root")
    licences = (tmp_path / "root/usr/share/doc/nervure/copyright").read_text()
    assert "Apache License" in licences
    for crate in ("quinn-proto", "serde"):
        assert re.search(rf"^{crate} [\d.]+: .+", licences, re.MULTILINE), crate
