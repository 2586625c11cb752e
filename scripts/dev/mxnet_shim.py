"""The module names of MXNet 1.9 and 2.0 over Baton's, for running MXNet's own tests.

`install()` puts them where `import mxnet` finds them. What Baton has under a name is in `MODULES`;
the rest of this file is what only tests ask for: comparisons, environment variables, nose.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import numpy

# A module's old name to Baton's modules that have its names, the first one that does wins, and
# names of its own.
MODULES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "mxnet": (
        ("compiler.gluon.device",),
        {
            "Context": "compiler.gluon.device:Device",
            "current_context": "compiler.gluon.device:current_device",
            "library": "compiler.library",
            "model": "compiler.model",
            "np_shape": "mxnet_shim:scope",
            "waitall": "compiler.gluon.ndarray:waitall",
        },
    ),
    "mxnet._deferred_compute": (("compiler.gluon.deferred",), {}),
    "mxnet.autograd": (("compiler.gluon.autograd",), {}),
    "mxnet.base": (
        ("mxnet_shim",),
        {"MXNetError": "compiler.errors:BatonError", "mx_real_t": "numpy:float32"},
    ),
    "mxnet.context": (
        ("compiler.gluon.device",),
        {
            "Context": "compiler.gluon.device:Device",
            "current_context": "compiler.gluon.device:current_device",
        },
    ),
    "mxnet.device": (("compiler.gluon.device",), {}),
    "mxnet.gluon": (("compiler.gluon",), {}),
    "mxnet.gluon.block": (("compiler.gluon.block", "compiler.gluon.hybrid_block"), {}),
    "mxnet.gluon.model_zoo": (("compiler.gluon.model_zoo",), {}),
    "mxnet.gluon.model_zoo.vision": (("compiler.gluon.model_zoo.vision",), {}),
    "mxnet.gluon.contrib": ((), {}),
    "mxnet.gluon.contrib.nn": (
        ("compiler.gluon.nn",),
        {
            "Concurrent": "compiler.gluon.nn:Concatenate",
            "HybridConcurrent": "compiler.gluon.nn:HybridConcatenate",
        },
    ),
    "mxnet.gluon.nn": (("compiler.gluon.nn",), {}),
    "mxnet.gluon.parameter": (("compiler.gluon.parameter", "compiler.gluon"), {}),
    "mxnet.gluon.utils": (("compiler.gluon.utils",), {}),
    "mxnet.init": (("compiler.gluon.initializer",), {}),
    "mxnet.initializer": (("compiler.gluon.initializer",), {}),
    "mxnet.name": (("compiler.symbol.naming",), {}),
    "mxnet.nd": (
        ("compiler.gluon.nd",),
        {
            "_internal": "mxnet_shim:internal",
            "np": "mxnet.np",
            "reset_arrays": "compiler.gluon.autograd:backward",  # which clears gradients
            "sparse": "mxnet.ndarray.sparse",
        },
    ),
    "mxnet.ndarray": (("compiler.gluon.nd",), {}),
    "mxnet.ndarray.ndarray": (("compiler.gluon.nd", "mxnet_shim"), {}),
    "mxnet.ndarray.sparse": (("mxnet_shim",), {}),
    "mxnet.np": (("compiler.gluon.np",), {"_internal": "compiler.gluon.npx"}),
    "mxnet.npx": (("compiler.gluon.npx",), {}),
    "mxnet.numpy": (("compiler.gluon.np",), {}),
    "mxnet.numpy_extension": (("compiler.gluon.npx",), {}),
    "mxnet.random": (("compiler.gluon.random",), {}),
    "mxnet.runtime": (("mxnet_shim",), {}),
    "mxnet.sym": (("compiler.symbol",), {"_internal": "mxnet_shim:internal"}),
    "mxnet.sym.np": (("compiler.symbol",), {"_Symbol": "compiler.symbol:Symbol"}),
    "mxnet.symbol": (("compiler.symbol",), {}),
    "mxnet.test_utils": (
        ("mxnet_shim",),
        {
            "default_context": "compiler.gluon.device:current_device",
            "default_device": "compiler.gluon.device:current_device",
        },
    ),
    "mxnet.util": (("mxnet_shim", "compiler.gluon.npx"), {}),
    "nose": ((), {}),
    "nose.tools": (("mxnet_shim",), {}),
}


class Renamed(types.ModuleType):
    """A module under an old name; its attributes are looked up when they are asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        where, own = MODULES[self.__name__]
        if f"{self.__name__}.{name}" in MODULES:
            return sys.modules[f"{self.__name__}.{name}"]
        if name in own:
            module, _, attribute = own[name].partition(":")
            found = importlib.import_module(module)
            return getattr(found, attribute) if attribute else found
        for found in map(importlib.import_module, where):
            if hasattr(found, name):
                return getattr(found, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        where, own = MODULES[self.__name__]
        return sorted({*own, *(n for each in where for n in dir(importlib.import_module(each)))})


def install() -> None:
    """Make the old names importable, and the names that numpy itself has dropped since."""
    for name in MODULES:
        sys.modules[name] = Renamed(name)
    from compiler.symbol import Symbol

    Symbol.handle = property(lambda symbol: symbol)
    for name, kind in (("float", float), ("int", int), ("bool", bool), ("object", object)):
        if name not in vars(numpy):
            setattr(numpy, name, kind)


# ---------------------------------------------------------------- what only tests ask for


def assert_almost_equal(
    a: Any, b: Any, rtol: float | None = None, atol: float | None = None, *_: Any, **__: Any
) -> None:
    """Compare arrays by tolerances that follow from their dtype where none are given."""
    left, right = numpy.broadcast_arrays(numpy.asarray(a), numpy.asarray(b))
    small = numpy.float16 in (left.dtype, right.dtype)
    numpy.testing.assert_allclose(
        left,
        right,
        rtol=rtol if rtol is not None else (1e-2 if small else 1e-4),
        atol=atol if atol is not None else (1e-1 if small else 1e-3),
    )


assert_allclose = numpy.testing.assert_allclose
TemporaryDirectory = tempfile.TemporaryDirectory


def same(a: Any, b: Any) -> bool:
    """Whether arrays are equal, element by element."""
    return bool(numpy.array_equal(numpy.asarray(a), numpy.asarray(b)))


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


def use_np(function: Any) -> Any:
    """The function itself: numpy's semantics are always on."""
    return function


use_np_shape = use_np_array = use_np_default_dtype = use_np


@contextlib.contextmanager
def scope(active: bool = True) -> Iterator[None]:
    """A context without effect: numpy's semantics are always on."""
    yield


np_shape = np_array = np_default_dtype = scope
_STORAGE_TYPE_STR_TO_ID = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}


class CSRNDArray:
    """The class of sparse arrays, of which there are none."""


RowSparseNDArray = CSRNDArray


def csr_matrix(*_: Any, **__: Any) -> NoReturn:
    """Raise OutOfScopeError: arrays are dense."""
    from compiler.errors import OutOfScopeError

    raise OutOfScopeError("csr_matrix: only dense arrays are supported")


retain = row_sparse_array = csr_matrix


class Features:
    """What MXNet was built with: nothing that a test could ask for."""

    def is_enabled(self, name: str) -> bool:
        return False


class internal:
    """Base classes by which MXNet's tests look for leaked arrays."""

    class NDArrayBase:
        """No array is an instance of it."""

    class SymbolBase:
        """No symbol is an instance of it."""


# nose, which MXNet 1.9's tests were written for.


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


# The entries of MXNet's C library by which test_subgraph_op.py names the operators to be claimed.

mx_uint = int


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

        def claim(graph: str, ids: list[int], options: Any) -> None:
            for index, node in enumerate(json.loads(graph)["nodes"]):
                if node["op"] in names:
                    ids[index] = -1

        before = registered()
        _LIB.replaced.setdefault(backend, before.get(backend))
        partition.register(backend, [partition.Strategy("names", claim)], replace=True)

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
