"""Compare the public names of older TVM versions with those under Baton's old names.

`public_names.py CHECKOUT...` reads every Python module of checkouts of TVM, in folders named by
version (`0.8.0`), without importing them. It asks for each module, name, parameter and member with
`compiler.legacy` installed, writes `tests/compiler/legacy/public_names.txt` and prints the rows of
`docs/old_names.md`. The states:

* works: the name exists, with all parameters and members it had.
* differs: it exists, without the parameters or members listed.
* refused: using it raises an error that names the replacement.
* missing: Python's own AttributeError or ImportError, or an error that names no replacement.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import importlib
import inspect
import io
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "compiler" / "legacy" / "public_names.txt"
WORKS, DIFFERS, REFUSED, MISSING = "works", "differs", "refused", "missing"
STATES = (WORKS, DIFFERS, REFUSED, MISSING)
# Modules that are programs, generated bindings or compiled code.
_NO_API = ("tvm.exec", "tvm._ffi._cy", "tvm._ffi._ctypes", "tvm._ffi._pyversion", "tvm._pyversion")


# ---------------------------------------------------------------- the names of a checkout


@dataclass
class Name:
    """A public name: parameters of a function or class, members of a class."""

    parameters: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    origin: str = ""


@dataclass
class Source:
    """A module's names, in the order of its statements, and the modules that it loads."""

    names: dict[str, Name] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    passed_on: dict[str, str] = field(default_factory=dict)
    loads: set[str] = field(default_factory=set)
    exported: list[str] | None = None


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module that run on import, those of `if` and `try` among them."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [each for handler in node.handlers for each in handler.body]
            yield from _statements([*node.body, *handlers, *node.orelse])


def _parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _class(node: ast.ClassDef) -> Name:
    made = Name()
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            if each.name == "__init__":
                made.parameters = _parameters(each)
            elif _is_public(each.name):
                made.members.append(each.name)
        elif isinstance(each, ast.Assign):
            made.members += [
                target.id
                for target in each.targets
                if isinstance(target, ast.Name) and _is_public(target.id)
            ]
    return made


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".")[: None if is_package else -1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def read_module(text: str, module: str, is_package: bool) -> Source:
    """The names of one module."""
    source = Source()
    for node in _statements(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef):
            source.names[node.name] = Name(_parameters(node))
        elif isinstance(node, ast.ClassDef):
            source.names[node.name] = _class(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for each in getattr(target, "elts", [target]):
                    if isinstance(each, ast.Name):
                        source.names[each.id] = Name()
                        if each.id == "__all__" and isinstance(node.value, (ast.List, ast.Tuple)):
                            source.exported = [ast.literal_eval(one) for one in node.value.elts]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                source.loads.add(alias.name)
                bound = alias.asname or alias.name.partition(".")[0]
                source.passed_on[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, module, is_package)
            source.loads.add(origin)
            for alias in node.names:
                if alias.name == "*":
                    source.stars.append(origin)
                else:
                    source.loads.add(f"{origin}.{alias.name}")
                    source.passed_on[alias.asname or alias.name] = f"{origin}.{alias.name}"
    return source


def read_checkout(checkout: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Public names by module: what it defines, imports and takes over by star imports."""
    sources: dict[str, Source] = {}
    for root in (checkout / "python", checkout / "topi" / "python"):
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            if module.startswith(("tvm", "topi")) and not module.startswith(_NO_API):
                sources[module] = read_module(path.read_text(), module, is_package)
    loaded = _loaded(sources, "tvm")
    return {
        module: {
            "names": {k: asdict(v) for k, v in sorted(_names(sources, module, ()).items())},
            "loaded": module in loaded,
        }
        for module in sources
        if not any(part.startswith("_") and part != "_ffi" for part in module.split("."))
    }


def _names(sources: dict[str, Source], module: str, seen: tuple[str, ...]) -> dict[str, Name]:
    source = sources[module]
    found: dict[str, Name] = {}
    for star in source.stars:
        if star in sources and star not in seen:
            taken = _names(sources, star, (*seen, module))
            exported = sources[star].exported
            found |= {k: v for k, v in taken.items() if exported is None or k in exported}
    for name, origin in source.passed_on.items():
        owner, _, last = origin.rpartition(".")
        if owner != "__future__":
            known = sources[owner].names.get(last) if owner in sources else None
            found[name] = replace(known or Name(), origin=origin)
    return {k: v for k, v in (found | source.names).items() if _is_public(k)}


def _loaded(sources: dict[str, Source], start: str) -> set[str]:
    """Modules that `import tvm` loads, with the packages around them."""
    todo, seen = [start], set()
    while todo:
        module = todo.pop()
        package = module.rpartition(".")[0]
        if module in sources and module not in seen:
            seen.add(module)
            todo += [*sources[module].loads, package]
    return seen


# ---------------------------------------------------------------- what Baton has of them


def _attribute(path: str) -> Any:
    found: Any = sys.modules["tvm"]
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return found


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def look_up(modules: dict[str, dict[str, Any]], era: str) -> dict[str, dict[str, list[str]]]:
    """State and explanation of each module ("") and of its names; to be called in a new process."""
    from compiler import legacy
    from compiler.errors import LegacyImportError

    legacy.install(everything=True, era=era)
    found: dict[str, dict[str, list[str]]] = {}
    lost = set()
    for module in sorted(name for name in modules if modules[name]["loaded"]):
        try:
            _attribute(module) if module != "tvm" else importlib.import_module("tvm")
        except LegacyImportError:
            pass
        except Exception:
            lost.add(module)
    for module, wanted in modules.items():
        try:
            here = importlib.import_module(module)
        except LegacyImportError as error:
            how = [_state_of(error), _reason(error)]
            found[module] = dict.fromkeys(["", *wanted["names"]], how)
            continue
        except (Exception, SystemExit) as error:
            found[module] = {each: [MISSING, _reason(error)] for each in ["", *wanted["names"]]}
            continue
        how = [DIFFERS, "needs an import"] if module in lost else [WORKS, ""]
        found[module] = {"": how, **_of_module(here, module, wanted["names"])}
    return found


def _of_module(here: ModuleType, module: str, names: dict[str, Any]) -> dict[str, list[str]]:
    scope: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        exec(f"from {module} import *", scope)
    found = {}
    for name, wanted in names.items():
        state, how = _of_name(here, module, name, wanted)
        if state == WORKS and name not in scope and "." not in module.replace("tvm.relay.", ""):
            state, how = DIFFERS, "not by a star import"
        found[name] = [state, how, "" if name in scope else "lazy"]
    return found


def _of_name(here: ModuleType, module: str, name: str, wanted: dict[str, Any]) -> list[str]:
    from compiler.errors import BatonError

    try:
        try:
            return _compare(getattr(here, name), wanted)
        except AttributeError:
            if not wanted["origin"].startswith(("tvm", "topi")):
                raise
            return _compare(importlib.import_module(f"{module}.{name}"), wanted)
    except BatonError as error:
        return [_state_of(error), _reason(error)]
    except Exception as error:
        return [MISSING, _reason(error)]


def _state_of(error: Exception) -> str:
    return MISSING if "has no counterpart" in str(error) else REFUSED


def _compare(value: Any, wanted: dict[str, list[str]]) -> list[str]:
    """The state of a name that exists."""
    from compiler.legacy.removed_modules import Absent, AbsentModule

    if isinstance(value, AbsentModule) or type(value) is Absent:
        return [REFUSED, value._instead]
    lost = [f"{name}=" for name in wanted["parameters"] if not _takes(value, name)]
    lost += [f".{name}" for name in wanted["members"] if not hasattr(value, name)]
    return [DIFFERS, "no " + " ".join(lost)] if lost else [WORKS, ""]


def _takes(value: Any, parameter: str) -> bool:
    try:
        known = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return True
    return parameter in known or any(
        each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) for each in known.values()
    )


def look_up_apart(modules: dict[str, dict[str, Any]], era: str) -> dict[str, Any]:
    """Run `look_up` in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = pathlib.Path(folder, "names.json"), pathlib.Path(folder, "found.json")
        given.write_text(json.dumps(modules))
        command = [sys.executable, __file__, "--look-up", str(given), str(out), era]
        subprocess.run(command, check=True, cwd=ROOT)
        return dict(json.loads(out.read_text()))


# ---------------------------------------------------------------- what is committed


# Packages whose names today's TVM defines itself, and which scripts import by name.
_OF_TODAY = ("tvm.relax", "tvm.script", "tvm.dlight", "tvm.meta_schedule", "tvm.tir.schedule")
_PASSED_ON = ROOT / "compiler" / "legacy" / "passed_on_names.txt"


def passed_on_lines(every: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Lines of `passed_on_names.txt`: what modules lack by star import, with where it came from."""
    lines: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for modules, found in every.values():
        for module, wanted in modules.items():
            states = found[module]
            if module.startswith(_OF_TODAY) or states[""][0] in (REFUSED, MISSING):
                continue
            for name, each in wanted["names"].items():
                state, _, is_lazy = states[name]
                origin = each["origin"]
                if state in (WORKS, DIFFERS) and is_lazy:
                    lines[module][name] = lines[module].get(name, "")
                elif state == MISSING and origin and _can_resolve(origin, found):
                    lines[module][name] = f"={origin}"
    return [
        " ".join([module, *(f"{k}{v}" for k, v in sorted(names.items()))])
        for module, names in sorted(lines.items())
    ]


def _can_resolve(origin: str, found: dict[str, Any]) -> bool:
    owner, _, last = origin.rpartition(".")
    if not origin.startswith(("tvm", "topi")):
        return owner.partition(".")[0] in (*sys.stdlib_module_names, "numpy") or origin in (
            *sys.stdlib_module_names,
            "numpy",
        )
    if any(part.startswith("_") for part in origin.split(".")):
        return True
    state = found.get(owner, {}).get(last) or found.get(origin, {}).get("")
    return state is not None and state[0] in (WORKS, DIFFERS, REFUSED)


def table_lines(every: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Lines of the name table: module, state, names; the latest version that has a name decides."""
    states: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for modules, found in every.values():
        for module, wanted in modules.items():
            states[module][""] = found[module][""][0]
            for name, each in wanted["names"].items():
                if not each["origin"] or each["origin"].startswith(("tvm", "topi")):
                    states[module][name] = found[module][name][0]
    lines = []
    for module, names in sorted(states.items()):
        if names.pop("") in (REFUSED, MISSING):
            lines.append(f"{module} {found_state(states, module, every)} *")
            continue
        for state in STATES:
            of_state = sorted(name for name, each in names.items() if each == state)
            if of_state:
                lines.append(f"{module} {state} {' '.join(of_state)}")
    return lines


def found_state(states: Any, module: str, every: dict[str, Any]) -> str:
    """State of a whole module in the latest version that has it."""
    return [found[module][""][0] for _, found in every.values() if module in found][-1]


def counts(every: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Rows of the page's table."""
    rows = []
    for version, (modules, found) in every.items():
        whole = collections.Counter(found[module][""][0] for module in modules)
        names = collections.Counter(
            found[module][name][0]
            for module in modules
            for name, each in modules[module]["names"].items()
            if not each["origin"] or each["origin"].startswith(("tvm", "topi"))
        )
        for what, number in (("modules", whole), ("names", names)):
            cells = " | ".join(str(number[state]) for state in STATES)
            rows.append(f"| {version} | {what} | {sum(number.values())} | {cells} |")
    return rows


def check() -> list[str]:
    """Names of the committed table that are lost, or refused without naming a replacement.

    Modules that need a package that is not installed are left out.
    """
    from compiler import legacy

    legacy.install(everything=True, era="0.6")
    wanted = asdict(Name(origin="tvm"))  # names of modules may need an import
    lost = []
    for line in DATA.read_text().splitlines():
        module, state, *names = line.split()
        try:
            if state in (WORKS, DIFFERS):
                here = importlib.import_module(module)
                found = [_of_name(here, module, name, wanted)[0] for name in names]
                lost += [f"{module}.{n}" for n, each in zip(names, found) if each == MISSING]
            elif state == REFUSED:
                lost += [f"{module}.{n}" for n in names if len(_refusal(module, n)) <= 10]
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] in ("compiler", "topi", "tvm"):
                lost.append(f"{module}: {error}")
    return lost


def _refusal(module: str, name: str) -> str:
    """The message of a refused name; "" if it has none."""
    from compiler.errors import LegacyImportError

    try:
        here = importlib.import_module(module)
        state, how = _of_name(here, module, "any" if name == "*" else name, asdict(Name()))
    except LegacyImportError as error:
        return str(error)
    return how if state == REFUSED else ""


def _add_passed_on(every: dict[str, Any], lines: list[str]) -> None:
    """Set the states of names that `passed_on_names.txt` has from now on; the test proves them."""
    for line in lines:
        module, *names = line.split()
        for name, _, origin in (each.partition("=") for each in names):
            is_private = any(part.startswith("_") for part in origin.split(".")[1:])
            for _, found in every.values():
                state = found.get(module, {}).get(name)
                if state and state[0] == MISSING:
                    state[0] = REFUSED if is_private else WORKS


def main() -> None:
    """Read the checkouts, ask for their names, and write both data files."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("checkouts", nargs="+", type=pathlib.Path, help="oldest first")
    options.add_argument("--passed-on", action="store_true", help="write passed_on_names.txt first")
    given = options.parse_args()
    modules = {each.name: read_checkout(each) for each in given.checkouts}

    def ask() -> dict[str, Any]:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            eras = [".".join(version.split(".")[:2]) for version in modules]
            found = pool.map(look_up_apart, modules.values(), eras)
            return dict(zip(modules, zip(modules.values(), found)))

    if given.passed_on:
        _PASSED_ON.write_text("")
    every = ask()
    if given.passed_on:
        lines = passed_on_lines(every)
        _PASSED_ON.write_text("\n".join(lines) + "\n")
        _add_passed_on(every, lines)
    DATA.write_text("\n".join(table_lines(every)) + "\n")
    print("\n".join(counts(every)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look-up"]:
        wanted = json.loads(pathlib.Path(sys.argv[2]).read_text())
        sys.argv[1:] = sys.argv[1:1]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            answer = look_up(wanted, sys.orig_argv[-1])
        pathlib.Path(sys.orig_argv[-2]).write_text(json.dumps(answer))
    elif sys.argv[1:] == ["--check"]:
        sys.argv[1:] = []
        with contextlib.redirect_stdout(io.StringIO()):
            missing = check()
        print("\n".join(missing), end="")
    else:
        main()
