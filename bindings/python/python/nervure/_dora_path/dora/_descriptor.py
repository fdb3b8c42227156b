"""The dataflow file, as its nodes see it."""

from __future__ import annotations

import os
from typing import Any

# `nervure run` sets it to the path of the dataflow file.
_FILE_VARIABLE = "NERVURE_DATAFLOW_FILE"


def read() -> dict[str, Any]:
    """The dataflow file as a dict.

    Raises:
        RuntimeError: no file is known, or PyYAML is not installed.
    """
    file = os.environ.get(_FILE_VARIABLE)
    if file is None:
        raise RuntimeError("the dataflow file is not known: `nervure run` did not start this program")
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise RuntimeError("PyYAML is needed to read the dataflow file: pip install pyyaml") from error
    with open(file, encoding="utf-8") as text:  # noqa: PTH123  (the import of pathlib takes some milliseconds)
        descriptor: dict[str, Any] = yaml.safe_load(text)
    return descriptor


def config_of(node: Any) -> dict[str, Any]:
    """The inputs of a node, as in the file, and its outputs."""
    declared = next((entry for entry in read()["nodes"] if entry.get("id") == node.id), {})
    return {"inputs": declared.get("inputs") or {}, "outputs": list(node.outputs)}
