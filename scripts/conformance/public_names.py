"""Compare the public names of older TVM versions with those under Baton's old names.

`public_names.py CHECKOUT...` reads every Python module of checkouts of TVM, in folders named by
version (`0.8.0`), without importing them. It asks for each module, name, parameter and member with
`compiler.legacy` installed, writes `tests/compiler/legacy/public_names.txt` and prints the rows of
`docs/old_names.md`; with `--words` it writes `compiler/legacy/old_words.txt` instead, which the
second run needs. The states:

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
import re
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
# Packages of helpers for tests that scripts import, too.
_TESTING = ("tvm.testing", "tvm.relay.testing", "tvm.topi.testing", "topi.testing")
# Modules that are programs, generated bindings or compiled code.
_NO_API = ("tvm.exec", "tvm._ffi._cy", "tvm._ffi._ctypes", "tvm._ffi._pyversion", "tvm._pyversion")

# Modules that define functions in TVMScript. Its parser looks for each frame of the stack in all
# modules, which takes minutes when those of all older versions are loaded.
_INTRINSICS = [f"tvm.s_tir.tensor_intrin.{name}" for name in ("cuda", "metal", "rocm", "x86")]


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
        if _is_public_module(module)
    }


def _is_public_module(module: str) -> bool:
    """Whether scripts import a module: not TVM's internals, nor what its own tests share."""
    if any(part.startswith("_") for part in module.split(".")):
        return module in ("tvm._ffi", "tvm._ffi.base", "tvm._ffi.registry")
    return ".testing" not in module or module.startswith(_TESTING)


def _names(sources: dict[str, Source], module: str, seen: tuple[str, ...]) -> dict[str, Name]:
    source = sources[module]
    found: dict[str, Name] = {}
    for star in source.stars:
        if star in sources and star not in seen:
            taken = _names(sources, star, (*seen, module))
            exported = sources[star].exported
            found |= {
                k: replace(v, origin=v.origin or f"{star}.{k}")
                for k, v in taken.items()
                if exported is None or k in exported
            }
    for name, origin in source.passed_on.items():
        owner, _, last = origin.rpartition(".")
        if owner != "__future__":
            known = sources[owner].names.get(last) if owner in sources else None
            found[name] = replace(known or Name(), origin=origin)
    every = found | source.names
    return {k: v for k, v in every.items() if _is_public(k) and _is_public(_last(v.origin))}


def _last(path: str) -> str:
    return path.rpartition(".")[2]


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
    from compiler.legacy.removed_modules import AbsentModule

    for name in _INTRINSICS:
        importlib.import_module(name)
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
        if isinstance(here, AbsentModule):
            how = [REFUSED, str(here.__doc__)]
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


_WORDS = ROOT / "compiler" / "legacy" / "old_words.txt"
_Every = dict[str, tuple[dict[str, Any], dict[str, Any]]]


def word_lines(every: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of `old_words.txt`: the names that today's modules may lack, by package.

    `every`: names of modules by version. What the committed table calls working is left out, unless
    the list is why it works. A name that the modules of a package imported from one place stands
    with that place; modules that had it from elsewhere have a line with theirs. "name/" is a module
    that is missing, "name=/" one that was loaded with its package.
    """
    from compiler import legacy
    from compiler.legacy import import_hook

    legacy.install(everything=True, era="0.6")
    here = _known_today()
    listed = {
        owner: {re.split("[=/]", each)[0] for each in names}
        for owner, *names in map(str.split, _WORDS.read_text().splitlines())
    }
    places: dict[str, dict[str, dict[str, str]]] = collections.defaultdict(
        lambda: collections.defaultdict(dict)
    )
    lines: dict[str, set[str]] = collections.defaultdict(set)
    for modules in every.values():
        aliases = _shortest_paths(modules)
        for module, wanted in modules.items():
            package = ".".join(module.split(".")[: 2 if module.startswith("tvm.") else 1])
            owner = module.rpartition(".")[0]
            if wanted["loaded"] and owner.count("."):
                lines[owner].add(f"{_last(module)}=/")
            gone = any(f"{module}.".startswith(f"{each}.") for each in import_hook.GONE)
            if package == "tvm" or gone or import_hook.absent_by_row(module):
                continue
            if not import_hook.exists(import_hook.today(module) or module):
                lines[package].add(_last(module) + "/")
                continue
            known = here.get(module, set()) - listed.get(package, set())
            for name, each in wanted["names"].items():
                if name not in known and _is_of_tvm(each["origin"]):
                    full = f"{module}.{name}"
                    place = aliases[_definition(modules, full)]
                    places[package][name][module] = (
                        "" if place == full and full not in modules else place
                    )
    for package, names in places.items():
        for name, by_module in names.items():
            ((usual, _),) = collections.Counter(by_module.values()).most_common(1)
            lines[package].add(f"{name}={usual}" if usual else name)
            for module, place in by_module.items():
                if place != usual:
                    lines[module].add(f"{name}={place}" if place else name)
    return [" ".join([owner, *sorted(names)]) for owner, names in sorted(lines.items())]


def merged_words(before: list[str], new: list[str]) -> list[str]:
    """Lines of both lists; a name that the older list answers keeps the place that it has there."""
    lines = {owner: set(names) for owner, *names in map(str.split, before)}
    known = {owner: {each.partition("=")[0] for each in names} for owner, names in lines.items()}
    for owner, *names in map(str.split, new):
        around = [owner[:end] for end in (*_dots(owner), len(owner))]
        listed = set().union(*(known.get(each, ()) for each in around))
        lines.setdefault(owner, set()).update(
            each for each in names if each.partition("=")[0] not in listed
        )
    return [" ".join([owner, *sorted(names)]) for owner, names in sorted(lines.items()) if names]


def _dots(path: str) -> list[int]:
    return [at for at, letter in enumerate(path) if letter == "."]


def _known_today() -> dict[str, set[str]]:
    """Names that work, or differ, by module, as the committed table has them."""
    known: dict[str, set[str]] = collections.defaultdict(set)
    for line in DATA.read_text().splitlines():
        module, state, *names = line.split()
        if state in (WORKS, DIFFERS):
            known[module] |= {_read_name(each)[0] for each in names}
    return known


def _is_of_tvm(origin: str) -> bool:
    """Whether a name is a module's own, or imported from TVM."""
    return not origin or origin.startswith(("tvm", "topi"))


def _definition(modules: dict[str, Any], full: str) -> str:
    """The full name that a name has where it is defined; a module is its own definition."""
    for _ in range(9):
        module, _, name = full.rpartition(".")
        each = modules.get(module, {"names": {}})["names"].get(name)
        origin = each["origin"] if each else ""
        if not origin or origin == full:
            break
        full = origin
    return full


def _shortest_paths(modules: dict[str, Any]) -> dict[str, str]:
    """Shortest full name, by definition, among those that modules re-export."""
    paths: dict[str, str] = {}
    for module, wanted in modules.items():
        for name in wanted["names"]:
            full = f"{module}.{name}"
            definition = _definition(modules, full)
            package = definition.split(".")[:2]  # where other packages also pass the name on
            each = min(
                *(paths.get(definition, full), full),
                key=lambda p: (p.split(".")[:2] != package, p.count("."), len(p), p),
            )
            is_module = definition in modules
            paths[definition] = definition if is_module else each
    return paths


def table_lines(every: _Every) -> list[str]:
    """Lines of the name table: module, state, names; the latest version that has a name decides.

    A name stands with the parameters and members that it has: `name(parameter,...).member...`.
    Refused names of other modules are in `old_words.txt`; missing ones are left out.
    """
    states: dict[str, dict[str, tuple[str, str]]] = collections.defaultdict(dict)
    for modules, found in every.values():
        for module, wanted in modules.items():
            states[module][""] = found[module][""][0], ""
            for name, each in wanted["names"].items():
                if _is_of_tvm(each["origin"]):
                    state, how = found[module][name][:2]
                    states[module][name] = state, name + _kept(each, how, state)
    lines = []
    for module, names in sorted(states.items()):
        state = names.pop("")[0]
        if state == REFUSED:
            lines.append(f"{module} {state} *")
        if state in (REFUSED, MISSING):
            continue
        for state in (WORKS, DIFFERS):
            of_state = sorted(text for each, text in names.values() if each == state)
            if of_state:
                lines.append(f"{module} {state} {' '.join(of_state)}")
    return lines


def _kept(wanted: dict[str, Any], how: str, state: str) -> str:
    """The parameters and members of a name that it still has, as text."""
    if state not in (WORKS, DIFFERS):
        return ""
    lost = how.split()
    kept = [each for each in wanted["parameters"] if f"{each}=" not in lost]
    members = [f".{each}" for each in wanted["members"] if f".{each}" not in lost]
    return (f"({','.join(kept)})" if kept else "") + "".join(members)


def counts(every: _Every) -> list[str]:
    """Rows of the page's table."""
    rows = []
    for version, (modules, found) in every.items():
        whole = collections.Counter(found[module][""][0] for module in modules)
        names = collections.Counter(
            found[module][name][0]
            for module in modules
            for name, each in modules[module]["names"].items()
            if _is_of_tvm(each["origin"])
        )
        for what, number in (("modules", whole), ("names", names)):
            cells = " | ".join(str(number[state]) for state in STATES)
            rows.append(f"| {version} | {what} | {sum(number.values())} | {cells} |")
    return rows


def check() -> list[str]:
    """Names whose state is worse than in the committed table, with both states.

    Modules that need a package that is not installed are left out.
    """
    from compiler import legacy

    legacy.install(everything=True, era="0.6")
    worse = []
    lines = DATA.read_text().splitlines()
    for line in sorted(lines, key=lambda each: each.startswith("topi")):  # they replace functions
        module, before, *names = line.split()
        wanted = dict(_read_name(each) for each in names)
        for name, (state, how) in _states_of(module, wanted).items():
            has_lost = state == DIFFERS and how.startswith("no ")
            if STATES.index(state) > STATES.index(before) or has_lost:
                worse.append(f"{module}.{name}: {before}, now {state}: {how}")
    return worse


def _read_name(text: str) -> tuple[str, dict[str, Any]]:
    """A name of the table, with the parameters and members that it had."""
    head, *members = text.split(".")
    name, _, parameters = head.rstrip(")").partition("(")
    given = parameters.split(",") if parameters else []
    return name, asdict(Name(given, members, origin="tvm"))  # names of modules may need an import


def _states_of(module: str, wanted: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """State of a module's names; none if the module needs a package that is not installed."""
    from compiler.errors import LegacyImportError

    try:
        here = importlib.import_module(module)
    except LegacyImportError as error:
        return dict.fromkeys(wanted, (_state_of(error), str(error)))
    except ModuleNotFoundError as error:
        is_own = str(error.name).partition(".")[0] in ("compiler", "topi", "tvm")
        return dict.fromkeys(wanted, (MISSING, str(error))) if is_own else {}
    asked = {("any" if name == "*" else name): each for name, each in wanted.items()}
    found = {name: _of_name(here, module, name, each) for name, each in asked.items()}
    return {name: (state, how) for name, (state, how) in found.items()}


def main() -> None:
    """Read the checkouts, ask for their names, and write both data files."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("checkouts", nargs="+", type=pathlib.Path, help="oldest first")
    options.add_argument("--words", action="store_true", help="write old_words.txt, and end")
    given = options.parse_args()
    modules = {each.name: read_checkout(each) for each in given.checkouts}
    if given.words:
        before, new = _WORDS.read_text().splitlines(), word_lines(modules)
        _WORDS.write_text("\n".join(merged_words(before, new)) + "\n")
        return
    with concurrent.futures.ThreadPoolExecutor() as pool:
        eras = [".".join(version.split(".")[:2]) for version in modules]
        found = pool.map(look_up_apart, modules.values(), eras)
        every = dict(zip(modules, zip(modules.values(), found)))
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
