"""Fixtures and constants of several tests."""

import sys
from pathlib import Path

import pytest

# The options of the build that all tests share: any other would compile the workspace once more.
BUILD = "--workspace --all-features --lib --bins --examples"


@pytest.fixture(scope="session")
def installed() -> Path:
    """The folder of this environment, which has the headers and the library."""
    folder = Path(sys.prefix)
    assert (folder / "lib" / "pkgconfig" / "nervure.pc").exists(), "no library for C: `make test` installs it"
    return folder
