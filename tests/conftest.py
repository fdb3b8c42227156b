"""Fixtures of the tests of nodes in C and C++."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def installed() -> Path:
    """The folder of this environment, which has the headers and the library."""
    folder = Path(sys.prefix)
    assert (folder / "lib" / "pkgconfig" / "nervure.pc").exists(), "no library for C: `make test` installs it"
    return folder
