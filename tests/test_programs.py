"""The analysis of Python programs by `nervure doctor` and scripts/dora_compat.py."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

READER = Path(__file__).parents[1] / "crates/cli/src/doctor/programs.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(READER.stem, READER)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[READER.stem] = module
    spec.loader.exec_module(module)
    return module


programs = load()


def used(text: str) -> set[str]:
    uses = programs.find_uses(ast.parse(text))
    return {".".join(part for part in (use.module, use.name, use.member) if part) for use in uses}


def test_methods_of_a_node_are_found_wherever_it_is_kept() -> None:
    assert used(
        """
from dora import Node as DoraNode

class Camera:
    def __init__(self):
        self.node = DoraNode("camera")
    def run(self):
        self.node.send_output("image", b"")

def helper(node: DoraNode):
    return node.next(timeout=1)

alias = DoraNode
alias().try_recv()
with DoraNode() as one:
    getattr(one, "drain")()
"""
    ) == {
        "dora.Node",
        "dora.Node.send_output",
        "dora.Node.next",
        "dora.Node.try_recv",
        "dora.Node.drain",
    }


def test_modules_and_classes_are_found() -> None:
    assert used("import dora\nnode = dora.Node()\nnode.next()\n") == {"dora", "dora.Node", "dora.Node.next"}
    assert used("from dora import DoraStatus\nDoraStatus.STOP\n") == {
        "dora.DoraStatus",
        "dora.DoraStatus.STOP",
    }
    assert used("import dora.cuda as c\nc.handle()\n") == {"dora.cuda", "dora.cuda.handle"}


def test_other_modules_are_not_dora() -> None:
    assert used("import dora_vad\nfrom .dora import Node\nnode = Node()\nnode.next()\n") == set()


def read(program: Path, package: Path, *options: str) -> list[tuple[str, int, str]]:
    done = subprocess.run(
        [sys.executable, READER, *options, program],
        env=os.environ | {"PYTHONPATH": str(package)},
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)["programs"][str(program)]
    return [(one["kind"], one["line"], one["name"]) for one in found]


def test_what_a_package_lacks_is_named_with_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "package" / "dora").mkdir(parents=True)
    (tmp_path / "package" / "dora" / "__init__.py").write_text(
        "class Node:\n    def next(self, timeout=None): pass\n    def log(self, **fields): pass\n"
        "class Bridge:\n    'Not supported: it has no counterpart.'\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "from dora import Bridge, Node, run\n"
        "import dora.cuda\n"
        "node = Node()\n"
        "node.next(timeout=1)\n"
        "node.next(deadline=1)\n"
        "node.log(level=1)\n"
        "node.drain()\n"
        "node.drain()\n"
    )
    assert read(program, tmp_path / "package") == [
        ("uses_dora", 1, ""),
        ("missing_name", 1, "dora.Bridge"),
        ("missing_import", 1, "dora.run"),
        ("missing_import", 2, "dora.cuda"),
        ("missing_name", 5, "Node.next(deadline=)"),
        ("missing_name", 7, "Node.drain"),
    ]


def test_modules_that_a_program_needs_at_its_start(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os.path, json\n"
        "import helper\n"
        "try:\n    import absent_one\nexcept ImportError:\n    pass\n"
        "def later():\n    import absent_two\n"
        "if __name__ == '__main__':\n    import absent_three\n"
    )
    (tmp_path / "helper.py").write_text("from absent_four.part import name\n")
    assert read(program, tmp_path) == [("missing_module", 10, "absent_three")]
    assert read(program, tmp_path, "--follow") == [
        ("missing_module", 10, "absent_three"),
        ("missing_module", 1, "absent_four.part"),
    ]
    program.write_text("def\n")
    assert [(kind, line) for kind, line, _ in read(program, tmp_path)] == [("unreadable", 1)]
