#!/usr/bin/env python3
"""Compile and run MXNet's own example/extensions over Baton, and count.

    python -m scripts.conformance.mxnet_extensions CHECKOUT                # all examples
    python -m scripts.conformance.mxnet_extensions CHECKOUT lib_subgraph lib_pass

CHECKOUT is a source tree of MXNet 1.7 to 2.0; its files are read, none is copied or changed. Every
`.cc` becomes a library, or a program where it has a `main`, in a folder of its own. Then each
`test_*.py` runs there, statement by statement, with the names of `mxnet_tests.py`.
Statements that ask for gradients or sparse arrays get the error that says that Baton has none:
they are counted as refused, and so is what only fails because such a statement did not run. What
needs nvcc or MXNet's internal headers is left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("example", nargs="*")
    parser.add_argument("--script", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.script:
        return run_script(given.script)
    folder = given.checkout / "example" / "extensions"
    examples = sorted(each for each in folder.iterdir() if each.is_dir())
    failed = 0
    for example in examples:
        if not given.example or example.name in given.example:
            failed += run_example(example)
    return 1 if failed else 0


def run_example(example: pathlib.Path) -> int:
    """Compile and run one example; returns how many of its parts failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for source in sorted([*example.glob("*.cc"), *example.glob("*.cu")]):
            said = compile_source(source, folder)
            failed += said.startswith("does not")
            print(f"{example.name}/{source.name}: {said}")
        for program in sorted(each for each in folder.iterdir() if not each.suffix):
            code = run_program(program)
            failed += code != 0
            print(f"{example.name}/{program.name}: exit status {code}")
        for script in sorted(example.glob("test_*.py")):
            needed = re.findall(r"\blib\w+\.so", script.read_text())
            if all((folder / name).is_file() for name in needed):
                failed += report_script(example, script, folder)
            else:
                print(f"{example.name}/{script.name}: left out, with its library")
    return failed


def compile_source(source: pathlib.Path, folder: pathlib.Path) -> str:
    """Compile a library or a program; returns what became of it."""
    from compiler.errors import PartitionError
    from compiler.mxnet import library

    if source.with_suffix(".cu").is_file():
        return "left out, a part of it is for nvcc"

    if "int main(" in source.read_text():
        flags = [flag for flag in library.compiler_flags() if flag != "-shared"]
        command = ["g++", *flags, str(source), "-o", str(folder / source.stem)]
        done = subprocess.run(
            [*command, *library.linker_flags()], capture_output=True, text=True, check=False
        )
        return outcome(done.stderr if done.returncode else "")
    try:
        library.build([source], folder / f"lib{source.stem}.so", ["-O0"])
    except PartitionError as error:
        return outcome(str(error))
    return outcome("")


def outcome(errors: str) -> str:
    """What a compiler's output says, in one line."""
    if not errors:
        return "compiled"
    first = next((line for line in errors.splitlines() if "error:" in line), errors)
    if first.endswith("No such file or directory"):
        return f"left out, it needs a header of MXNet's own: {first.split('error: ')[-1]}"
    return f"does not compile: {first}"


def run_program(program: pathlib.Path) -> int:
    """The exit status of a program that loads libraries of its folder."""
    from tvm_ffi import libinfo

    folders = [str(program.parent), str(pathlib.Path(libinfo.find_libtvm_ffi()).parent)]
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}
    return subprocess.run([str(program)], env=env, check=False).returncode


def report_script(example: pathlib.Path, script: pathlib.Path, folder: pathlib.Path) -> int:
    """Run a script in a process of its own and print what became of its statements."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "scripts.conformance.mxnet_extensions"]
    command += [str(example.parents[1]), "--script", str(script)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "RESULT": str(result)},
        capture_output=True,
        text=True,
        check=False,
    )
    where = f"{example.name}/{script.name}"
    if not result.is_file():
        print(f"{where}: ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
        return 1
    counts: dict[str, Any] = json.loads(result.read_text())
    result.unlink()
    print(
        f"{where}: {counts['ran']} statements ran, {counts['refused']} refused, "
        f"{counts['failed']} failed"
    )
    for line in counts["said"]:
        print(f"    {line}")
    return int(counts["failed"] > 0)


def run_script(script: pathlib.Path) -> int:
    """Run a script's statements one by one; what became of them goes to the file $RESULT."""
    from compiler.errors import OutOfScopeError
    from scripts.conformance import mxnet_tests

    mxnet_tests.install_names()
    counts: dict[str, Any] = {"ran": 0, "refused": 0, "failed": 0, "said": []}
    names: dict[str, Any] = {"__name__": "__main__"}
    lost: set[str] = set()  # names that a refused statement would have bound
    said: Exception | None
    for statement in ast.parse(script.read_text()).body:
        module = ast.Module([statement], [])
        try:
            exec(compile(module, str(script), "exec"), names)
            counts["ran"] += 1
            continue
        except OutOfScopeError as error:
            kind, said = "refused", error
        except Exception as error:
            is_lost = isinstance(error, NameError) and error.name in lost
            kind, said = ("refused", None) if is_lost else ("failed", error)
        counts[kind] += 1
        for each in ast.walk(statement):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                lost.add(each.id)
                names.pop(each.id, None)  # what it was before is not what the rest expects
        if said is not None:
            text = (str(said).strip().splitlines() or [""])[0]
            counts["said"].append(f"line {statement.lineno}, {kind}: {type(said).__name__}: {text}")
    pathlib.Path(os.environ["RESULT"]).write_text(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
