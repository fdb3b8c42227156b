"""The package: the costs of its import and of an idle node, and the correctness of its types."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import nervure
from conftest import Dataflow

PACKAGE = Path(__file__).parent.parent


def test_the_import_loads_no_large_modules() -> None:
    program = """
        import sys
        before = set(sys.modules)
        import nervure
        added = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(added - set(sys.stdlib_module_names)))
    """
    assert python(program).split() == ["nervure"]
    assert "asyncio" not in python("import sys, nervure; print(*sys.modules)").split()


def test_numpy_and_pyarrow_are_imported_when_needed(dataflow: Dataflow) -> None:
    dataflow.node(
        "node",
        """
        import sys
        from nervure import Node

        node = Node()
        assert next(node).id == "begin"

        def through(value):
            node.send("out", value)
            return node.next(timeout=30)

        for value in [1, "text", b"bytes", [1, 2], {"a": [1.5], "b": None}]:
            assert through(value).object == value
        assert "numpy" not in sys.modules and "pyarrow" not in sys.modules
        assert through(b"abc").numpy().tolist() == [97, 98, 99]
        assert "numpy" in sys.modules and "pyarrow" not in sys.modules
        assert through([1]).value.to_pylist() == [1]
        assert "pyarrow" in sys.modules
        print("done")
        """,
        inputs={"begin": "nervure/timer/secs/1000", "back": "node/out"},
        outputs=["out"],
    )
    assert dataflow.run().lines("node") == ["done"]


def test_an_idle_node_is_small(dataflow: Dataflow) -> None:
    dataflow.node(
        "idle",
        """
        import os, pathlib, time

        def resident_kib():
            lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("Rss:"))

        before = resident_kib()
        from nervure import Node
        node = Node()
        assert next(node).id == "begin"
        assert node.next(timeout=0.3) is None
        grown = resident_kib() - before
        assert grown <= 12 * 1024, grown
        tasks = pathlib.Path("/proc/self/task")
        assert len(list(tasks.iterdir())) <= 4

        def switches():
            return sum(
                int(line.split()[1])
                for task in tasks.iterdir()
                for line in (task / "status").read_text().splitlines()
                if line.startswith("voluntary_ctxt_switches")
            )

        before = switches()
        assert node.next(timeout=1.0) is None
        assert switches() - before <= 3, "it wakes up once a second"
        print("done", grown)
        """,
        inputs={"begin": "nervure/timer/secs/1000"},
    )
    assert dataflow.run().lines("idle")[0].startswith("done")


def test_the_stub_matches_the_module(tmp_path: Path) -> None:
    mypy("-m", "mypy.stubtest", "nervure._native", "--mypy-config-file", str(PACKAGE / "pyproject.toml"))


def test_docstrings_match_the_stub() -> None:
    """Each docstring of the module is the first paragraph of the one in the stub."""

    def first_paragraph(text: str | None) -> str:
        return " ".join((text or "").partition("\n\n")[0].split()).replace("``", "`").rstrip(".:")

    stub = ast.parse((PACKAGE / "python" / "nervure" / "_native.pyi").read_text())
    compared = 0
    for kind in stub.body:
        if isinstance(kind, ast.ClassDef):
            module_kind = getattr(nervure, kind.name)
            for member in kind.body:
                if not isinstance(member, ast.FunctionDef) or member.name.startswith("__"):
                    continue
                if expected := ast.get_docstring(member):
                    found = getattr(module_kind, member.name).__doc__
                    assert first_paragraph(found) == first_paragraph(expected), (kind.name, member.name)
                    compared += 1
    assert compared > 30


def test_typed_programs_are_checked(tmp_path: Path) -> None:
    right = tmp_path / "right.py"
    right.write_text(
        "import numpy as np\n"
        "from nervure import Event, Node, UnknownOutput\n"
        "from nervure.types import Twist\n"
        "async def run(node: Node) -> None:\n"
        "    async for event in node:\n"
        "        await node.send_async('a', event.object)\n"
        "def main() -> float | None:\n"
        "    node = Node()\n"
        "    for event in node:\n"
        "        kind: str = event['type']\n"
        "        speed: float = event.read(Twist).linear.x\n"
        "        image = event.numpy()\n"
        "        node.send('b', image.mean(), like=event, metadata={'a': 1, 'b': [1.5]})\n"
        "        with node.loan('c', image.shape, np.uint8) as loan:\n"
        "            loan.array[:] = image\n"
        "    found: Event | None = node.latest('d')\n"
        "    return found.age if found else None\n"
    )
    config = ["--config-file", str(PACKAGE / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    mypy("-m", "mypy", "--strict", *config, str(right))
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from nervure import Node\nNode().send('a', 1, like=3)\nNode().sned('a', 1)\n")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *config, str(wrong)], capture_output=True, text=True
    )
    assert result.returncode == 1 and "2 errors" in result.stdout, result.stdout
    mypy("-m", "mypy", "--strict", *config, str(PACKAGE / "python" / "nervure"))
    mypy("-m", "mypy", "--strict", *config, "-p", "dora")


def test_the_type_of_an_event_is_a_literal(tmp_path: Path) -> None:
    config = ["--config-file", str(PACKAGE / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    program = tmp_path / "kinds.py"
    program.write_text(
        "from nervure import Event\n"
        "def main(event: Event) -> bool:\n"
        "    kept: Event = event.copied()\n"
        "    return kept.type == 'INPUT' or event['type'] == 'STOP' or event.type == 'INPT'\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *config, str(program)], capture_output=True, text=True
    )
    assert "1 error" in result.stdout and "Non-overlapping equality check" in result.stdout, result.stdout


def python(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def mypy(*arguments: str) -> None:
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
