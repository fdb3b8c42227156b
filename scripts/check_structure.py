#!/usr/bin/env python3
"""Finds import cycles between files and between modules of a crate, and types with too many methods.

A file depends on another when it names an item of it, by `use` or by a path. A re-export
(`pub use`) and a `mod` line are no dependency, nor is anything under `#[cfg(test)]`. Names are resolved
through re-exports to the file that defines them. A module is a file with all files below it, as `a.rs` with
the folder `a`; modules with the same parent must not depend on each other. Sources must be formatted by
rustfmt: items of a file begin at the left margin.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_METHODS = 40

ITEM = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?(?:default |unsafe |async |const |extern \"C\" )*"
    r"(?:struct|enum|union|trait|type|fn|const|static|macro_rules!|mod) (?:mut )?(\w+)"
)
MODULE = re.compile(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);")
USE = re.compile(r"^(pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+|\b[a-z_]\w*(?:::\w+)+")
INHERENT = re.compile(r"^impl(?:<.*?>)? (?!.* for )(?:&(?:'\w+ )?(?:mut )?)?([\w:]+)", re.MULTILINE)
METHOD = re.compile(
    r"^ {4}(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)", re.MULTILINE
)


@dataclass
class Module:
    """A file of a crate."""

    file: Path
    path: tuple[str, ...]
    text: str
    items: set[str] = field(default_factory=set)
    children: dict[str, "Module"] = field(default_factory=dict)
    # Names that `use` brings, with the path behind each, and the modules of `use path::*`.
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    globs: list[tuple[str, ...]] = field(default_factory=list)
    # The paths that count as imports.
    imports: set[tuple[str, ...]] = field(default_factory=set)
    parent: "Module | None" = None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "crates", nargs="*", type=Path, help="folders of crates (default: all of the project)"
    )
    crates = parser.parse_args().crates or sorted(
        manifest.parent
        for pattern in ("crates/*", "bindings/*", "compat/dora/*")
        for manifest in ROOT.glob(f"{pattern}/Cargo.toml")
    )
    problems, files = [], 0
    for crate in crates:
        source = crate / "src"
        roots = [path for name in ("lib.rs", "main.rs") if (path := source / name).exists()]
        for program in sorted(source.glob("bin/*")):
            roots.append(program / "main.rs" if program.is_dir() else program)
        for root in roots:
            modules = read_crate(root)
            files += len(modules)
            found = file_cycles(modules) + module_cycles(modules) + large_types(modules)
            problems += [f"{crate.name}: {problem}" for problem in found]
    if not files:
        problems.append("no file was found")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{files} files checked for cycles and large types, {len(problems)} problems")
    return bool(problems)


def read_crate(root: Path) -> list[Module]:
    modules: list[Module] = []

    def read(file: Path, path: tuple[str, ...], parent: Module | None) -> Module:
        module = Module(file, path, without_tests(without_comments(file.read_text(encoding="utf-8"))))
        module.parent = parent
        modules.append(module)
        is_root = parent is None or file.name == "mod.rs"
        folder = file.parent if is_root else file.parent / file.stem
        for line in module.text.splitlines():
            if item := ITEM.match(line):
                module.items.add(item[1])
            if child := MODULE.match(line):
                found = [folder / f"{child[1]}.rs", folder / child[1] / "mod.rs"]
                existing = next((candidate for candidate in found if candidate.exists()), None)
                if existing:
                    module.children[child[1]] = read(existing, (*path, child[1]), module)
        read_uses(module)
        return module

    read(root, (), None)
    return modules


def without_comments(text: str) -> str:
    """The text without comments and without the contents of strings and characters."""
    pattern = r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\\\'])\''
    return re.sub(pattern, lambda found: "" if found[0].startswith("/") else '""', text, flags=re.DOTALL)


def without_tests(text: str) -> str:
    """The text without items under `#[cfg(test)]` or `#[cfg(all(test, ..))]`."""
    lines, kept, at = text.splitlines(), [], 0
    while at < len(lines):
        found = re.match(r"^( *)#\[cfg\((?:all\()?test\b", lines[at])
        if not found:
            kept.append(lines[at])
            at += 1
            continue
        indent = found[1]
        at += 1
        while lines[at].startswith(f"{indent}#["):
            at += 1
        if not lines[at].rstrip().endswith((";", "}")):
            at += 1
            while not re.match(rf"^{indent}[}})\]]", lines[at]):
                at += 1
        at += 1
    return "\n".join(kept)


def read_uses(module: Module) -> None:
    def note(is_public: bool, path: tuple[str, ...], alias: str) -> None:
        if path[-1] == "*":
            module.globs.append(path[:-1])
            path = path[:-1]
        else:
            module.names[alias] = path
        if not is_public:
            module.imports.add(path)

    text = module.text
    for use in USE.finditer(text):
        for path, alias in leaves(re.sub(r"\s+", " ", use[2])):
            note(bool(use[1]), path, alias)
    rest = USE.sub("", text)
    # `use` within a function counts as well.
    for use in re.finditer(r"^ +use ([^;]+);", rest, re.MULTILINE):
        for path, alias in leaves(re.sub(r"\s+", " ", use[1])):
            note(False, path, alias)
    module.imports |= {
        tuple(path[0].split("::")) for path in PATH.finditer(re.sub(r"^ +use [^;]+;", "", rest, flags=re.M))
    }


def leaves(tree: str, before: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """The paths of a `use` tree, each with the name that it brings."""
    tree = tree.strip()
    if "{" not in tree:
        name, _, alias = tree.partition(" as ")
        path = (*before, *name.split("::"))
        if path[-1] == "self":
            path = path[:-1]
        return [(path, (alias or path[-1]).strip())]
    head, _, inner = tree.partition("{")
    before = (*before, *[part for part in head.strip().split("::") if part])
    parts, depth, start = [], 0, 0
    inner = inner.rstrip().removesuffix("}")
    for at, character in enumerate(inner):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    parts.append(inner[start:])
    return [leaf for part in parts if part.strip() for leaf in leaves(part, before)]


def resolve(
    root: Module, module: Module, path: tuple[str, ...], seen: frozenset = frozenset()
) -> Module | None:
    """The file that defines what `path` names in `module`."""
    if (module.path, path) in seen:
        return None
    seen |= {(module.path, path)}
    if not path:
        return module
    first, rest = path[0], path[1:]
    if first == "crate":
        return resolve(root, root, rest, seen)
    if first == "self":
        return resolve(root, module, rest, seen)
    if first == "super":
        return resolve(root, module.parent, rest, seen) if module.parent else None
    if first in module.children:
        return resolve(root, module.children[first], rest, seen)
    if first in module.names:
        if module.names[first] == path:
            return None
        return resolve(root, module, (*module.names[first], *rest), seen)
    if first in module.items:
        return module
    for glob in module.globs:
        found = resolve(root, module, glob, seen)
        if found and found is not module and (found := resolve(root, found, path, seen)):
            return found
    return None


# The items that a file or module imports from each other one.
Imports = dict[str, dict[str, set[str]]]


def file_cycles(modules: list[Module]) -> list[str]:
    folder = modules[0].file.parent
    imports: Imports = {}
    for module, target, item in dependencies(modules):
        of_file = imports.setdefault(str(module.file.relative_to(folder)), {})
        of_file.setdefault(str(target.file.relative_to(folder)), set()).add(item)
    return cycles("files", imports)


def module_cycles(modules: list[Module]) -> list[str]:
    """Cycles of modules with the same parent. Imports of a file belong to each module that it is in."""
    imports_of_parent: dict[tuple[str, ...], Imports] = {}
    for module, target, item in dependencies(modules):
        depth = 0
        while module.path[depth : depth + 1] == target.path[depth : depth + 1]:
            depth += 1
        if min(len(module.path), len(target.path)) > depth:
            imports = imports_of_parent.setdefault(module.path[:depth], {})
            of_module = imports.setdefault("::".join(module.path[: depth + 1]), {})
            of_module.setdefault("::".join(target.path[: depth + 1]), set()).add(item)
    return [problem for imports in imports_of_parent.values() for problem in cycles("modules", imports)]


def dependencies(modules: list[Module]) -> Iterator[tuple[Module, Module, str]]:
    """Each import: the file, the file that defines the item, and the item."""
    for module in modules:
        for path in module.imports:
            found = resolve(modules[0], module, path)
            if found and found is not module:
                yield module, found, path[-1]


def cycles(kind: str, imports: Imports) -> list[str]:
    problems = []
    for group in components(imports):
        if len(group) > 1:
            problems.append(f"{len(group)} {kind} import each other in a cycle: {', '.join(sorted(group))}")
            for name in sorted(group):
                for target in sorted(imports[name].keys() & set(group)):
                    items = ", ".join(sorted(imports[name][target])[:6])
                    problems[-1] += f"\n    {name} -> {target}: {items}"
    return problems


def components(edges: Imports) -> list[list[str]]:
    """The strongly connected components (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, {}):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            found.append([])
            while True:
                found[-1].append(stack.pop())
                if found[-1][-1] == node:
                    break

    for node in edges:
        if node not in index:
            visit(node)
    return found


def large_types(modules: list[Module]) -> list[str]:
    methods: dict[str, list[str]] = {}
    files: dict[str, set[str]] = {}
    for module in modules:
        for block in INHERENT.finditer(module.text):
            end = module.text.find("\n}", block.end())
            name = block[1].rpartition("::")[2]
            methods.setdefault(name, []).extend(METHOD.findall(module.text[block.end() : end]))
            files.setdefault(name, set()).add(module.file.name)
    return [
        f"`{name}` has {len(found)} methods in {len(files[name])} files, more than {MOST_METHODS}"
        for name, found in sorted(methods.items())
        if len(found) > MOST_METHODS
    ]


if __name__ == "__main__":
    sys.exit(main())
