#!/usr/bin/env python3
"""Run MXNet's own tests of blocks, subgraphs and deferred compute over Baton, and count.

    python -m scripts.conformance.mxnet_tests CHECKOUT  # the files of DEFAULT
    python -m scripts.conformance.mxnet_tests CHECKOUT test_deferred_compute.py
    python -m scripts.conformance.mxnet_tests CHECKOUT --results out  # resumes what out/ lacks
    python -m scripts.conformance.mxnet_tests CHECKOUT --results out --failed

CHECKOUT is a source tree of MXNet 1.9 or 2.0; its files are read, none is copied or changed.
They import `mxnet` as under `baton run`, with the names below that only tests use. "Refused by
design" counts the tests that need training, gradients or sparse arrays and get the error that says
so.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import numpy

from scripts.conformance import external_tests

DEFAULT = ("test_subgraph_op.py", "test_deferred_compute.py", "test_gluon.py", "test_extensions.py")
LIBRARIES = {
    "libcustomop_lib.so": "lib_custom_op/gemm_lib.cc",
    "libsubgraph_lib.so": "lib_subgraph/subgraph_lib.cc",
}
"""Libraries that test_extensions.py loads, and their sources in `example/extensions`."""
STORAGE_TYPES = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}


def prepare(checkout: str) -> list[str]:
    """Let `import mxnet` import Baton's door, with the names that only tests use."""
    install_names()
    return []


def install_names() -> None:
    """Make `mxnet` and `nose` importable, and restore the names that numpy has dropped."""
    from compiler import legacy
    from compiler.legacy.import_hook import use_names_of_mxnet

    legacy.install()
    use_names_of_mxnet(True)
    for module, names in test_names().items():
        vars(importlib.import_module(module)).update(names)
    nd, sym = (importlib.import_module(f"mxnet.{name}") for name in ("nd", "sym"))
    add_module("mxnet.ndarray.ndarray", {**vars(nd), "_STORAGE_TYPE_STR_TO_ID": STORAGE_TYPES})
    vars(sym)["np"] = add_module("mxnet.sym.np", {"_Symbol": sym.Symbol})
    sym.Symbol.handle = property(lambda symbol: symbol)
    add_module("nose", {})
    add_module(
        "nose.tools",
        {"assert_raises": assert_raises, "make_decorator": make_decorator, "raises": raises},
    )
    for name, kind in (("float", float), ("int", int), ("bool", bool), ("object", object)):
        if name not in vars(numpy):
            setattr(numpy, name, kind)


def add_module(name: str, names: dict[str, Any]) -> types.ModuleType:
    """Make a module of some names importable."""
    module = types.ModuleType(name)
    vars(module).update({key: value for key, value in names.items() if key[:2] != "__"})
    sys.modules[name] = module
    return module


def test_names() -> dict[str, dict[str, Any]]:
    """Names that only MXNet's tests import, by module."""
    from compiler.mxnet import autograd, npx

    return {
        "mxnet.base": {
            "SymbolHandle": SymbolHandle,
            "_LIB": _LIB,
            "c_str": c_str,
            "c_str_array": c_str_array,
            "check_call": check_call,
            "mx_uint": int,
            "py_str": py_str,
        },
        "mxnet.nd": {"_internal": internal, "reset_arrays": autograd.backward},
        "mxnet.np": {"_internal": npx},
        "mxnet.sym": {"_internal": internal},
        "mxnet.test_utils": {
            "download": download,
            "environment": environment,
            "is_cd_run": is_cd_run,
        },
        "mxnet.util": {"TemporaryDirectory": tempfile.TemporaryDirectory},
    }


def build_libraries(
    checkout: pathlib.Path, folder: pathlib.Path, files: list[pathlib.Path]
) -> None:
    """Compile the examples of libraries that test_extensions.py loads, unchanged."""
    if all(file.name != "test_extensions.py" for file in files):
        return
    from compiler.mxnet import library

    for name, source in LIBRARIES.items():
        path = checkout / "example" / "extensions" / source
        if path.exists() and not (folder / name).exists():
            library.build([path], folder / name, ["-O1"])


def is_cd_run() -> bool:
    """Whether MXNet's own release machinery runs the tests."""
    return False


def download(*_: Any, **__: Any) -> NoReturn:
    """Raise: tests run without a network."""
    raise OSError("tests run without a network")


@contextlib.contextmanager
def environment(*settings: Any) -> Iterator[None]:
    """Set environment variables, given as a dict or as name and value; None removes one."""
    wanted = settings[0] if len(settings) == 1 else {settings[0]: settings[1]}
    before = {name: os.environ.get(name) for name in wanted}
    try:
        _set_environment(wanted)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)


class internal:
    """Base classes by which MXNet's tests look for leaked arrays."""

    class NDArrayBase:
        """No array is an instance of it."""

    class SymbolBase:
        """No symbol is an instance of it."""


def raises(*errors: type[BaseException]) -> Any:
    """Expect a test to raise."""

    def decorate(function: Any) -> Any:
        import functools

        import pytest

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            with pytest.raises(errors):
                function(*args, **kwargs)

        return run

    return decorate


def assert_raises(errors: Any, *call: Any, **kwargs: Any) -> Any:
    """Expect a call, or what a `with` block does, to raise."""
    import pytest

    return pytest.raises(errors, *call, **kwargs)


def make_decorator(function: Any) -> Any:
    """A decorator that gives a function another one's name."""
    import functools

    return functools.wraps(function)


# The entries of MXNet's C library by which test_subgraph_op.py names the operators to be selected.


class SymbolHandle(ctypes.py_object):
    """Holds a symbol; `Symbol(handle)` is that symbol."""

    def ordered(self) -> Any:
        return self.value.graph


def py_str(text: bytes) -> str:
    """Bytes as text."""
    return text.decode()


def c_str(text: str) -> str:
    """The text itself: nothing goes through C."""
    return text


def c_str_array(texts: Any) -> list[str]:
    """The texts themselves."""
    return list(texts)


def check_call(status: None) -> None:
    """Nothing to do: the entries below raise by themselves."""


class _LIB:
    """Entries of MXNet's C library, over the back end `default` and its option `op_names`."""

    replaced: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def MXSetSubgraphPropertyOpNamesV2(backend: str, count: int, names: list[str]) -> None:
        from compiler import partition
        from compiler.backends import registered

        def select(graph: str, ids: list[int], options: Any) -> None:
            for index, node in enumerate(json.loads(graph)["nodes"]):
                if node["op"] in names:
                    ids[index] = -1

        before = registered()
        _LIB.replaced.setdefault(backend, before.get(backend))
        partition.register(backend, [partition.Strategy("names", select)], replace=True)

    @staticmethod
    def MXRemoveSubgraphPropertyOpNamesV2(backend: str) -> None:
        from compiler.backends import registered, restore

        others = {name: made for name, made in registered().items() if name != backend}
        before = _LIB.replaced.pop(backend, None)
        restore(others if before is None else {**others, backend: before})

    MXSetSubgraphPropertyOpNames = MXSetSubgraphPropertyOpNamesV2
    MXRemoveSubgraphPropertyOpNames = MXRemoveSubgraphPropertyOpNamesV2

    @staticmethod
    def MXBuildSubgraphByOpNames(
        symbol: Any, backend: str, count: int, names: list[str], out: Any
    ) -> None:
        out._obj.value = symbol.optimize_for("default", op_names=names)


SUITE = external_tests.Suite(
    script="scripts.conformance.mxnet_tests",
    description=__doc__,
    checkout="a source tree of MXNet 1.9 or 2.0",
    folders=(pathlib.Path("tests/python/unittest"),),
    default=DEFAULT,
    prepare=prepare,
    set_up=build_libraries,
)

if __name__ == "__main__":
    sys.exit(external_tests.main(SUITE))
