"""No module imports another that imports it back, be it inside of functions."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def module_name(path):
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path, modules):
    """Modules that a file imports, but for those that only type checkers import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_checkers = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if id(node) in for_checkers:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])]) if node.level else node.module
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                if whole in modules or base in modules:
                    yield whole if whole in modules else base


def circles(graph):
    """Sets of several nodes that all reach each other."""
    reached = {node: set() for node in graph}
    for node, found in reached.items():
        stack = list(graph[node])
        while stack:
            other = stack.pop()
            if other not in found:
                found.add(other)
                stack += graph[other]
    groups = [{b for b in reached[a] if a in reached[b]} for a in graph]
    return [group for n, group in enumerate(groups) if len(group) > 1 and group not in groups[:n]]


def test_no_circles():
    files = [path for top in ("compiler", "schedules") for path in (ROOT / top).rglob("*.py")]
    modules = {module_name(path): path for path in files}
    graph = {name: set(imported(path, modules)) - {name} for name, path in modules.items()}
    assert circles(graph) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == [{"b", "c"}]
