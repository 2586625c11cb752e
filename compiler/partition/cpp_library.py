"""Partitioners of a C++ library: the Python side of `baton/partitioner.h`.

Graphs travel as JSON text, options as maps of strings, parameter values as tensors that share the
memory of the module's own, each when the library asks for it.
"""

from __future__ import annotations

import ctypes
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.backends.reasons import Unsupported
from compiler.backends.registry import (
    Compile,
    Mark,
    Options,
    Partitioner,
    RunPass,
    Strategy,
    register,
    register_pass,
)
from compiler.backends.relax_graph import RelaxGraph
from compiler.errors import PartitionError
from compiler.ir.dataflow_graph import RelaxFunction
from compiler.runtime.foreign import ExternalCode
from compiler.runtime.library_operators import LibraryOperator
from compiler.runtime.mxnet_requests import DTYPES, MxnetRequests
from compiler.runtime.partitioner_library import PartitionerLibrary, pack_code, runtime_name

from .selector import Selector


def load_cpp(file: Path) -> PartitionerLibrary:
    """Register a shared library, kept loaded for good; PartitionError if its content is invalid."""
    library = PartitionerLibrary(file)
    for number, described in enumerate(library.described):
        made = (_mxnet_partitioner if library.mxnet else _partitioner)(library, number, *described)
        register(made.name, made.strategies, check_options=made.check_options, compile=made.compile)
    for number, name in enumerate(library.passes):
        assert library.mxnet is not None, "passes are of libraries of MXNet's interface"
        register_pass(name, _run_pass(library.mxnet, number))
    library.register_engines()
    return library


def _partitioner(
    library: PartitionerLibrary,
    number: int,
    name: str,
    checks: bool,
    compiles: bool,
    strategies: Sequence[Any],
) -> Partitioner:
    def check_options(options: Options) -> str | None:
        return str(library.call("check_options", number, options))

    made = [
        _strategy(library, _CppStrategy(library.call, (number, index), _fetching), described)
        for index, described in enumerate(strategies)
    ]
    return Partitioner(
        str(name),
        tuple(made),
        check_options if checks else None,
        _compile(library, number, str(name)) if compiles else None,
    )


def _mxnet_partitioner(
    library: PartitionerLibrary,
    number: int,
    name: str,
    _checks: bool,
    _compiles: bool,
    strategies: Sequence[Any],
) -> Partitioner:
    """A partitioner whose subgraphs run in operators of the library, if it has those."""
    assert library.mxnet is not None, "the library is of MXNet's interface"
    operators = {each.name: each for each in library.operators if each.runs_subgraphs}
    made = []
    for index, (*described, reviews_all) in enumerate(strategies):
        calls = _MxnetStrategy(library.mxnet, (number, index), _numeric)
        calls.reviews_all = bool(reviews_all)
        made.append(_strategy(library, calls, described, described[1] in operators))
    compiles = any(each.compiles for each in made)
    return Partitioner(name, tuple(made), None, _run_claimed(operators) if compiles else None)


def _strategy(
    library: PartitionerLibrary,
    calls: _CppStrategy,
    described: Sequence[Any],
    compiles: bool = True,
) -> Strategy:
    """The strategy that a library describes by name, operator and the callbacks that it has."""
    title, operator, marks, selects, reviews = described
    return Strategy(
        str(title),
        calls.supported_ops if marks else None,
        calls.accept_subgraph if reviews else None,
        str(operator),
        calls.selector if selects else None,
        library=library.identity,
        compiles=compiles,
    )


class _CppStrategy:
    """The callbacks of a strategy, which `call` the library.

    `number`: of the partitioner and of the strategy. `values` converts parameters for the library.
    """

    reviews_all = True
    """Whether a review gets all parameters, not only those of its subgraph."""

    def __init__(
        self,
        call: Callable[..., Any],
        number: tuple[int, int],
        values: Callable[[Mapping[str, np.ndarray]], Any],
    ) -> None:
        self._call, self._number, self._values = call, number, values

    def supported_ops(self, graph_json: str, ids: list[int], options: Options) -> list[Mark]:
        answers = self._call("supported_ops", *self._number, graph_json, options)
        return [each if isinstance(each, int) else Unsupported(str(each)) for each in answers]

    def accept_subgraph(
        self,
        graph_json: str,
        subgraph_id: int,
        options: Options,
        attrs: dict[str, str],
        args: Mapping[str, np.ndarray],
        aux: Mapping[str, np.ndarray],
    ) -> bool:
        if not self.reviews_all:
            nodes = json.loads(graph_json)["nodes"]
            names = {node.get("attrs", {}).get("argName") for node in nodes}
            args, aux = ({n: each[n] for n in names if n in each} for each in (args, aux))
        given = graph_json, subgraph_id, options, self._values(args), self._values(aux)
        accepted, found = self._call("review", *self._number, *given)
        attrs.update((str(key), str(value)) for key, value in found.items())
        return bool(accepted)

    def selector(self, graph_json: str, options: Options) -> Selector:
        return _CppSelector(self._call("selector", *self._number, graph_json, options))


class _MxnetStrategy(_CppStrategy):
    """The callbacks of a strategy of MXNet's interface."""

    def selector(self, graph_json: str, options: Options) -> Selector:
        requests: Any = self._call
        return _CppSelector(requests.selector(*self._number, graph_json, options))


def _numeric(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value for name, value in values.items() if str(value.dtype) in DTYPES}


def _run_claimed(operators: Mapping[str, LibraryOperator]) -> Compile:
    def compile_subgraph(subgraph: Any, params: Mapping[str, np.ndarray], options: Options) -> Any:
        source, function = _source(subgraph, params)
        wanted = str(function.attrs["baton.subgraph_op"])
        if wanted not in operators:
            raise PartitionError(
                f"a subgraph is to run in the operator {wanted!r}, and the library has "
                f"{', '.join(operators)}; partition with compiler.partition"
            )
        variables = [node for node in source.graph.nodes if not node.inputs and node.op == "null"]
        numbers = itertools.count()
        sources = [
            source.values[node.name] if node.name in source.values else next(numbers)
            for node in variables
        ]
        attrs = _attrs(function) | {"subgraph_sym_json": source.graph.to_json()}
        return operators[wanted].claimed(attrs, sources)

    return compile_subgraph


def _compile(library: PartitionerLibrary, partitioner: int, name: str) -> Compile:
    def compile_subgraph(subgraph: Any, params: Mapping[str, np.ndarray], options: Options) -> Any:
        source, function = _source(subgraph, params)
        inputs = [
            number
            for number, node in enumerate(source.graph.nodes)
            if not node.inputs and node.op == "null" and node.name not in source.values
        ]
        attrs, text = _attrs(function), source.graph.to_json()
        values = _fetching(source.values)
        content = library.call("compile", partitioner, text, inputs, values, attrs, options)
        return ExternalCode(runtime_name(name), pack_code(bytes(content), attrs, options))

    return compile_subgraph


def _source(subgraph: Any, params: Mapping[str, np.ndarray]) -> tuple[RelaxGraph, Any]:
    """The graph of the one function of a module, and the function."""
    ((variable, function),) = subgraph.functions_items()
    return RelaxGraph(RelaxFunction(subgraph, variable.name_hint), params), function


def _attrs(function: Any) -> dict[str, str]:
    """Attributes that the review callback set."""
    return {
        str(key): value
        for key, value in dict(function.attrs).items()
        if isinstance(value, str) and not key.startswith("baton.") and key != "global_symbol"
    }


def _run_pass(requests: MxnetRequests, number: int) -> RunPass:
    def run(
        graph_json: str,
        options: Options,
        args: Mapping[str, np.ndarray],
        aux: Mapping[str, np.ndarray],
    ) -> tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]:
        new: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = {}, {}

        def read(result: Any) -> None:
            for name, shape, dtype, address, is_aux in result[1]:
                made = np.empty(shape, DTYPES[dtype])
                ctypes.memmove(made.ctypes.data, address, made.nbytes)
                new[is_aux][name] = made

        values = _numeric(args), _numeric(aux)
        text, _ = requests("pass", number, graph_json, options, *values, read=read)
        return text, *new

    return run


class _CppSelector(Selector):
    """A selector whose methods are functions of the library."""

    def __init__(self, methods: Sequence[Any]) -> None:
        self._select, self._input, self._output, self._filter, self._reset = methods

    def select(self, node: int) -> bool:
        return bool(self._select(node))

    def select_input(self, node: int, input_node: int) -> bool:
        return bool(self._input(node, input_node))

    def select_output(self, node: int, output_node: int) -> bool:
        return bool(self._output(node, output_node))

    def filter(self, candidates: list[int]) -> list[int]:
        return [int(node) for node in self._filter(candidates)]

    def reset(self) -> None:
        self._reset()


def _fetching(values: Mapping[str, np.ndarray]) -> Callable[..., dict[str, Any]]:
    """Return a callback that gives values, by name or all, as DLPack; valid during the call."""
    contiguous: dict[str, np.ndarray] = {}  # copies only where the layout is another

    def fetch(*names: str) -> dict[str, Any]:
        found = {}
        for name in map(str, names or values):
            if name in values and values[name].dtype.kind in "biuf":
                contiguous[name] = np.asarray(values[name], order="C")
                found[name] = _shared(contiguous[name])
        return found

    return fetch


def _shared(value: np.ndarray) -> Any:
    """A tensor on the array's memory. The array must outlive it.

    The array is read-only, which this version of DLPack can't say; the header hands out nothing
    but pointers to const.
    """
    import tvm_ffi

    if not value.size:
        return tvm_ffi.from_dlpack(np.empty(value.shape, value.dtype))
    memory = (ctypes.c_char * value.nbytes).from_address(value.ctypes.data)
    alias = np.frombuffer(memoryview(memory), value.dtype, value.size).reshape(value.shape)
    return tvm_ffi.from_dlpack(alias)
