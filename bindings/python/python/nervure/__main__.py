"""``python -m nervure``: the command ``nervure`` that was installed with this package."""

import os
import sys
import sysconfig
from pathlib import Path


def find_command() -> Path:
    """Return the path of the command that belongs to this package.

    Raises FileNotFoundError if it is in none of the folders that installers use for scripts.
    """
    package = Path(__file__).resolve().parent
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", "posix_user"),
        # `pip install --target` puts scripts beside the packages.
        str(package.parent / "bin"),
    ]
    for folder in folders:
        command = Path(folder) / "nervure"
        if os.access(command, os.X_OK):
            return command
    raise FileNotFoundError("the command `nervure` is in none of " + ", ".join(folders))


def main() -> None:
    """Replace this process by the command."""
    try:
        command = find_command()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}\n\nhint: reinstall the package: pip install --force-reinstall nervure")
    os.execv(command, [str(command), *sys.argv[1:]])


if __name__ == "__main__":
    main()
