"""The scanner of scripts/dora_compat.py finds what a program uses of dora's API, and what a package lacks."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


scan = load("dora_api_use")


def used(text: str) -> set[str]:
    uses = scan.find_uses(ast.parse(text))
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


def test_what_a_package_lacks_is_named_with_its_first_line(tmp_path: Path) -> None:
    folder = tmp_path / "package" / "dora"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "class Node:\n    def next(self, timeout=None): pass\n    def log(self, **fields): pass\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "from dora import Node, run\n"
        "import dora.cuda\n"
        "node = Node()\n"
        "node.next(timeout=1)\n"
        "node.next(deadline=1)\n"
        "node.log(level=1)\n"
        "node.drain()\n"
        "node.drain()\n"
    )
    found = scan.programs(tmp_path, [program])
    package = scan.Package(Path(sys.executable), tmp_path / "package", ["dora", "dora.cuda"])
    assert package.lacks(found[0]) == [
        (1, "dora.run"),
        (2, "dora.cuda"),
        (5, "Node.next(deadline=)"),
        (7, "Node.drain"),
    ]
