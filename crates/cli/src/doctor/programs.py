"""Reads Python programs without running them: which modules and which parts of the package `dora` they lack.

It is run by the interpreter that runs the programs, with their PYTHONPATH:

    python programs.py [--follow] FILE...

and prints JSON. `--follow` also reads imported modules in a program's own folder, and a command's module.
`nervure doctor` has this file built in, and `scripts/dora_compat.py` runs it on programs of dora's clones.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A program that imports more files of its own than this is checked in part.
MOST_FILES = 200
MISSING = object()


def main() -> None:
    # With `python -c` the first entry is the working directory, which is not on a program's path.
    sys.path[:] = [folder for folder in sys.path if folder]
    arguments = sys.argv[1:]
    follows = "--follow" in arguments
    package = Package()
    found = {file: check(Path(file), package, follows) for file in arguments if file != "--follow"}
    result = {
        "python": sys.version.split()[0],
        "dora": origin("dora", []),
        "programs": found,
    }
    print(json.dumps(result))


def check(program: Path, package: Package, follows: bool) -> list[dict[str, Any]]:
    """Findings in a program and, with `follows`, in the files that it imports, in their order."""
    findings: list[dict[str, Any]] = []
    folders = [str(program.parent)]
    files, done = [program], set()
    while files and len(done) < MOST_FILES:
        file = files.pop(0)
        if file in done:
            continue
        done.add(file)
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (OSError, SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            findings.append({"kind": "unreadable", "file": str(file), "line": line, "name": str(error)})
            continue
        uses = find_uses(tree)
        first = len(findings)
        if uses:
            findings.append({"kind": "uses_dora", "file": str(file), "line": uses[0].line, "name": ""})
            if origin("pyarrow", []) is None:
                # Values of dora's events are arrays of pyarrow.
                findings.append(
                    {"kind": "missing_module", "file": str(file), "line": uses[0].line, "name": "pyarrow"}
                )
        for line, name, is_import in package.lacks(uses):
            kind = "missing_import" if is_import else "missing_name"
            findings.append({"kind": kind, "file": str(file), "line": line, "name": name})
        for line, module in required_modules(tree):
            place = origin(module, folders)
            if place is None:
                if not is_dora(module) and not (uses and module.partition(".")[0] == "pyarrow"):
                    findings.append(
                        {"kind": "missing_module", "file": str(file), "line": line, "name": module}
                    )
            elif follows and (Path(place).is_relative_to(program.parent) or is_command(program)):
                files.append(Path(place))
        findings[first:] = sorted(findings[first:], key=lambda one: one["line"])
    return findings


def is_command(program: Path) -> bool:
    """A script that an installer has made: all it does is in the module that it imports."""
    return program.suffix != ".py"


def required_modules(tree: ast.Module) -> list[tuple[int, str]]:
    """The modules that are imported when the program starts, with their first lines.

    Imports in functions and in `try` may never be reached, or may fail without harm.
    """
    lines: dict[str, int] = {}
    for node in at_start(tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                lines.setdefault(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            lines.setdefault(node.module, node.lineno)
    return [(line, module) for module, line in lines.items()]


def at_start(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, (ast.With, ast.For, ast.While, ast.ClassDef)):
            yield from at_start(node.body)
        elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
            # Of the branches of another `if`, either may run.
            yield from at_start(node.body)


def origin(module: str, folders: list[str]) -> str | None:
    """The file of a module, as a program in the folders would find it; None if there is none.

    Only the top package is looked for where finding the module would run its code.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return "built in"
    for folder in folders:
        base = Path(folder, *module.split("."))
        for place in (base.with_suffix(".py"), base / "__init__.py"):
            if place.is_file():
                return str(place)
        if base.is_dir():
            return str(base)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or []:
        base = Path(folder, *module.split(".")[1:])
        for place in (base.with_suffix(".py"), base / "__init__.py"):
            if place.is_file():
                return str(place)
    return spec.origin or "a namespace"


@dataclass(frozen=True)
class Use:
    """One use of a module of dora (`name` is empty), of a name in it, or of a member of a class in it."""

    line: int
    module: str
    name: str = ""
    member: str = ""
    # Names of arguments, where it is called.
    keywords: tuple[str, ...] = ()
    is_import: bool = False


def find_uses(tree: ast.Module) -> list[Use]:
    scanner = Scanner()
    scanner.collect_imports(tree)
    if scanner.uses:
        scanner.collect_instances(tree)
        scanner.visit(tree)
    return sorted(set(scanner.uses), key=lambda use: (use.line, use.module, use.name, use.member))


def is_dora(module: str) -> bool:
    return module == "dora" or module.startswith("dora.")


class Scanner(ast.NodeVisitor):
    """Names are resolved in the whole file, not by scope: programs call their node `node` everywhere."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        # Local name, or dotted name, to the imported thing: (module, name).
        self._imported: dict[str, tuple[str, str]] = {}
        self._instances: dict[str, tuple[str, str]] = {}

    def collect_imports(self, tree: ast.Module) -> None:
        at_import = set(map(id, at_start(tree.body)))
        for node in ast.walk(tree):
            is_import = id(node) in at_import
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if is_dora(alias.name):
                        self.uses.append(Use(node.lineno, alias.name, is_import=is_import))
                        self._imported[alias.asname or alias.name] = (alias.name, "")
            elif isinstance(node, ast.ImportFrom) and not node.level and is_dora(node.module or ""):
                for alias in node.names:
                    self.uses.append(Use(node.lineno, node.module or "", alias.name, is_import=is_import))
                    self._imported[alias.asname or alias.name] = (node.module or "", alias.name)

    def collect_instances(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            for target, value, is_annotation in bindings(node):
                if isinstance(value, ast.Call):
                    made = self._resolve(value.func)
                else:
                    made = self._resolve(value)
                    # A second name for a class or module.
                    if made and not is_annotation:
                        self._imported[target] = made
                        continue
                if made and made[1]:
                    self._instances[target] = made

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
        """Resolves an expression to an imported module, or to a name in one."""
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


def bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr, bool]]:
    """The names that a statement binds, each with its expression, and whether that is only its annotation."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, (ast.Name, ast.Attribute)):
                yield ast.unparse(target), node.value, False
    elif isinstance(node, ast.AnnAssign):
        yield ast.unparse(node.target), node.value or node.annotation, node.value is None
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value, False
    elif isinstance(node, ast.arg) and node.annotation:
        yield node.arg, node.annotation, True
    elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
        yield node.optional_vars.id, node.context_expr, False


class Package:
    """The package `dora` of this interpreter."""

    def lacks(self, uses: list[Use]) -> list[tuple[int, str, bool]]:
        """The uses that fail, each name once: line, dotted name, whether the import fails."""
        found: dict[str, tuple[int, bool]] = {}
        for use in uses:
            missing, is_stub = self._missing(use)
            if missing:
                found.setdefault(missing, (use.line, use.is_import and not is_stub))
        return sorted((line, name, is_import) for name, (line, is_import) in found.items())

    def _missing(self, use: Use) -> tuple[str | None, bool]:
        """The missing name, and whether the name exists but its use is an error."""
        try:
            module = importlib.import_module(use.module)
        except Exception:
            return use.module, False
        if not use.name:
            return None, False
        full = f"{use.module}.{use.name}"
        value = getattr(module, use.name, MISSING)
        if value is MISSING:
            try:
                value = importlib.import_module(full)
            except Exception:
                return full, False
        if is_unsupported(value):
            return full, True
        called = full
        if use.member:
            called = f"{use.name}.{use.member}"
            if not inspect.isclass(value):
                return None, False
            value = getattr(value, use.member, MISSING)
            if value is MISSING or is_unsupported(value):
                return called, True
        for keyword in use.keywords:
            if not takes(value, keyword):
                return f"{called}({keyword}=)", True
        return None, False


def is_unsupported(value: Any) -> bool:
    """True for a name that exists only for imports. Its docstring begins with "Not supported"."""
    return (getattr(value, "__doc__", None) or "").startswith("Not supported")


def takes(function: Any, keyword: str) -> bool:
    """True if the function has the argument, or if Python cannot list its arguments."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return True
    one = parameters.get(keyword)
    return one is not None and one.kind is not inspect.Parameter.POSITIONAL_ONLY


if __name__ == "__main__":
    main()
