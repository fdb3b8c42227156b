"""What Python programs use of dora's API, read from their syntax, and what a package `dora` has of it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Runs in the interpreter that has the package. Prints the names of each module, the members of each class,
# and the parameters of each function, as far as Python knows them.
DESCRIBE = """
import importlib, inspect, json, sys

def parameters(function):
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[one.name, int(one.kind)] for one in found]

def describe(name):
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    described = {}
    for key in dir(module):
        value = getattr(module, key)
        members = None
        if inspect.isclass(value):
            members = {member: parameters(getattr(value, member, None)) for member in dir(value)}
        described[key] = {"members": members, "parameters": parameters(value)}
    return described

print(json.dumps({name: describe(name) for name in sys.argv[1:]}))
"""

# Numbers of `inspect.Parameter.kind`.
_KEYWORD_KINDS = {1, 3}
_ANY_KEYWORDS = 4


@dataclass(frozen=True)
class Use:
    """One use of a module of dora (`name` is empty), of a name in it, or of a member of a class in it."""

    line: int
    module: str
    name: str = ""
    member: str = ""
    # Names of arguments, where it is called.
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A Python file that imports dora."""

    path: str
    uses: tuple[Use, ...]


def programs(clone: Path, files: Iterable[Path]) -> list[Program]:
    """Returns the files that import dora, with all uses. Files that are not Python are skipped."""
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        if "dora" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        uses = find_uses(tree)
        if uses:
            found.append(Program(str(file.relative_to(clone)), tuple(uses)))
    return found


def find_uses(tree: ast.Module) -> list[Use]:
    scanner = _Scanner()
    scanner.collect_imports(tree)
    if scanner.uses:
        scanner.collect_instances(tree)
        scanner.visit(tree)
    return sorted(set(scanner.uses), key=lambda use: (use.line, use.module, use.name, use.member))


class _Scanner(ast.NodeVisitor):
    """Names are resolved in the whole file, not by scope: programs call their node `node` everywhere."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        # Local name, or dotted name, to what it stands for: (module, name).
        self._imported: dict[str, tuple[str, str]] = {}
        self._instances: dict[str, tuple[str, str]] = {}

    def collect_imports(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if _is_dora(alias.name):
                        self.uses.append(Use(node.lineno, alias.name))
                        self._imported[alias.asname or alias.name] = (alias.name, "")
            elif isinstance(node, ast.ImportFrom) and not node.level and _is_dora(node.module or ""):
                for alias in node.names:
                    self.uses.append(Use(node.lineno, node.module or "", alias.name))
                    self._imported[alias.asname or alias.name] = (node.module or "", alias.name)

    def collect_instances(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            for target, value in _bindings(node):
                if isinstance(value, ast.Call):
                    made = self._resolve(value.func)
                else:
                    made = self._resolve(value)
                    # A second name for a class or module.
                    if made and not isinstance(node, ast.arg) and not _is_annotation(node, value):
                        self._imported[ast.unparse(target)] = made
                        continue
                if made and made[1]:
                    self._instances[target if isinstance(target, str) else ast.unparse(target)] = made

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._add(node, ())
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        if isinstance(node.func, ast.Attribute):
            self._add(node.func, keywords)
        elif isinstance(node.func, ast.Name):
            module, name = self._imported.get(node.func.id, ("", ""))
            if name:
                self.uses.append(Use(node.lineno, module, name, keywords=keywords))
            elif node.func.id == "getattr" and len(node.args) == 2:
                owner, member = node.args
                made = self._instances.get(ast.unparse(owner))
                if made and isinstance(member, ast.Constant) and isinstance(member.value, str):
                    self.uses.append(Use(node.lineno, *made, member.value))
        self.generic_visit(node)

    def _add(self, node: ast.Attribute, keywords: tuple[str, ...]) -> None:
        if isinstance(node.value, ast.Call):
            made = self._resolve(node.value.func)
        else:
            made = self._instances.get(ast.unparse(node.value))
        if made and made[1]:
            self.uses.append(Use(node.lineno, *made, node.attr, keywords))
            return
        module, name = self._resolve(node.value) or ("", "")
        if name:
            self.uses.append(Use(node.lineno, module, name, node.attr, keywords))
        elif module and ast.unparse(node) not in self._imported:
            self.uses.append(Use(node.lineno, module, node.attr, keywords=keywords))

    def _resolve(self, node: ast.expr) -> tuple[str, str] | None:
        """What an expression names: an imported module, or a name in one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._imported.get(node.value)
        if isinstance(node, ast.Name):
            return self._imported.get(node.id)
        if isinstance(node, ast.Attribute):
            whole = self._imported.get(ast.unparse(node))
            if whole:
                return whole
            owner = self._resolve(node.value)
            if owner and not owner[1]:
                return owner[0], node.attr
        return None


def _bindings(node: ast.AST) -> Iterator[tuple[Any, ast.expr]]:
    """The names that a statement binds, with what they are bound to or annotated with."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, (ast.Name, ast.Attribute)):
                yield target, node.value
    elif isinstance(node, ast.AnnAssign):
        yield node.target, node.value or node.annotation
    elif isinstance(node, ast.NamedExpr):
        yield node.target, node.value
    elif isinstance(node, ast.arg) and node.annotation:
        yield node.arg, node.annotation
    elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
        yield node.optional_vars, node.context_expr


def _is_annotation(node: ast.AST, value: ast.expr) -> bool:
    return isinstance(node, ast.AnnAssign) and value is node.annotation


def _is_dora(module: str) -> bool:
    return module == "dora" or module.startswith("dora.")


class Package:
    """What a package `dora` has, as the interpreter that imports it finds it."""

    def __init__(self, python: Path, folder: Path | None, modules: Iterable[str]) -> None:
        environment = dict(os.environ)
        if folder:
            environment["PYTHONPATH"] = str(folder)
        command = [str(python), "-c", DESCRIBE, *sorted({"dora", *modules})]
        output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        self._modules: dict[str, Any] = json.loads(output)
        if self._modules["dora"] is None:
            raise SystemExit(f"error: {python} cannot import the module dora")

    def lacks(self, program: Program) -> list[tuple[int, str]]:
        """The uses that the package has no answer to: line, and name as a reader writes it."""
        lines: dict[str, int] = {}
        for use in program.uses:
            missing = self._missing(use)
            if missing:
                lines.setdefault(missing, use.line)
        return sorted((line, name) for name, line in lines.items())

    def _missing(self, use: Use) -> str | None:
        module = self._modules[use.module]
        if module is None:
            return use.module
        if not use.name or f"{use.module}.{use.name}" in self._modules:
            return None
        described = module.get(use.name)
        if described is None:
            return f"{use.module}.{use.name}"
        parameters = described["parameters"]
        called = f"{use.module}.{use.name}"
        if use.member:
            called = f"{use.name}.{use.member}"
            if described["members"] is None:
                return None
            if use.member not in described["members"]:
                return called
            parameters = described["members"][use.member]
        for keyword in use.keywords:
            if parameters is not None and not _takes(parameters, keyword):
                return f"{called}({keyword}=)"
        return None


def _takes(parameters: list[list[Any]], keyword: str) -> bool:
    return any(
        kind == _ANY_KEYWORDS or (kind in _KEYWORD_KINDS and name == keyword) for name, kind in parameters
    )
