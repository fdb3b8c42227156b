"""Fixtures and constants of several tests."""

import shutil
import sys
from pathlib import Path

import pytest

# The options of the build that all tests share: any other would compile the workspace once more.
BUILD = "--workspace --all-features --lib --bins --examples"


CAN_BUILD_CPP = shutil.which("c++") is not None and shutil.which("pkg-config") is not None


@pytest.fixture(scope="session")
def installed() -> Path:
    """The folder of this environment, which has the headers and the library, if this machine can use them."""
    if not CAN_BUILD_CPP:
        pytest.skip("apt install g++ pkg-config")
    folder = Path(sys.prefix)
    assert (folder / "lib" / "pkgconfig" / "nervure.pc").exists(), "no library for C: `make test` installs it"
    return folder
