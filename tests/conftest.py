"""What several tests of nodes in C and C++ share."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The headers and the library, installed in a folder."""
    folder = tmp_path_factory.mktemp("native")
    options = ["--without-dora", "--quiet"]
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "native.py", folder, *options], check=True)
    return folder
