"""`from_mxnet`: an MXNet symbol becomes a Relay module with static shapes, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tvm

from compiler.errors import FrontendError
from compiler.mxnet_format.graph import Graph
from compiler.mxnet_format.json_format import read_json
from compiler.support import strictness

Shape = tuple[int, ...]


class Symbol(Protocol):
    """A `compiler.mxnet.symbol.Symbol`, or one of a real MXNet."""

    def tojson(self) -> str:
        """The symbol as JSON."""


def from_mxnet(
    symbol: Symbol,
    shape: Mapping[str, Shape] | Sequence[Shape] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    arg_params: Mapping[str, Any] | None = None,
    aux_params: Mapping[str, Any] | None = None,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Import an MXNet symbol as a module of Relay's operators.

    Operators behave as at inference: dropout does nothing, batch norm uses the moving statistics.
    Variables that are then unused (the label of a softmax output, the gamma that `fix_gamma`
    replaces by 1) do not appear in the result. A subgraph node is replaced by its body.

    Parameters
    ----------
    symbol : compiler.mxnet.symbol.Symbol or compiler.mxnet.gluon.HybridBlock
        Anything with a method `tojson` is accepted, such as the symbol of a real MXNet. A block
        is traced for inputs of `shape`, which it requires; its parameters are used.
    shape
        Input name to shape; or the shapes of the inputs that have no value in `arg_params`, in
        the order of `list_inputs`. Shapes of weights follow from the data's.
    dtype
        Dtype of the inputs and of the weights without a value: one for all, or by name.
    arg_params, aux_params
        Name to array: numpy, or anything with `asnumpy` or `numpy`.

    Returns
    -------
    mod : tvm.IRModule
        One function, `main`: the inputs, then the parameters, each in the order of `list_inputs`;
        the body is one dataflow block.
    params : dict of str to tvm.runtime.Tensor
        Values of the parameters of `main` that have one.

    Raises
    ------
    FrontendError
        The symbol is damaged, shapes and attributes contradict each other, or it is neither a
        symbol nor a block.
    UnsupportedOperatorError
        Operators, or forms of them, that can't be converted; names operators and nodes.
    UnknownShapeError
        The shape of an input is not given and does not follow from others.
    """
    from compiler.relay.relax_to_relay import ImportedModule

    if not hasattr(symbol, "tojson"):
        symbol, arg_params, aux_params = _traced(symbol, shape, dtype, arg_params or aux_params)
    mod, params = import_symbol(symbol, shape, dtype, arg_params, aux_params)
    return ImportedModule(mod), params


def _traced(
    block: Any,
    shape: Mapping[str, Shape] | Sequence[Shape] | None,
    dtype: str | Mapping[str, str],
    params: Any,
) -> tuple[Symbol, dict[str, Any], dict[str, Any]]:
    """The symbol of a block, its arguments and its auxiliary states."""
    trace = getattr(block, "as_symbol", None)
    if trace is None:
        raise FrontendError(
            f"from_mxnet takes a Symbol or a HybridBlock of compiler.mxnet, not "
            f"{type(block).__name__}"
        )
    if not shape or params:
        what = "shapes of its inputs" if not shape else "no arg_params: it has parameters"
        raise FrontendError(f"from_mxnet of the block {type(block).__name__} needs {what}")
    if not isinstance(shape, Mapping):
        shape = {f"data{i}" if i or len(shape) > 1 else "data": s for i, s in enumerate(shape)}
    found: tuple[Symbol, dict[str, Any], dict[str, Any]] = trace(shape, dtype)
    return found


def import_symbol(
    symbol: Symbol,
    shape: Mapping[str, Shape] | Sequence[Shape] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    arg_params: Mapping[str, Any] | None = None,
    aux_params: Mapping[str, Any] | None = None,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """`from_mxnet` with Relax's operators, for those who build the module at once."""
    from .graph import SymbolImporter

    graph = _graph_of(symbol)
    arrays = {
        name: host_array(value)
        for name, value in {**(arg_params or {}), **(aux_params or {})}.items()
    }
    return SymbolImporter(graph, _shapes(graph, shape, arrays), dtype, arrays).run()


def infer_shapes(
    symbol: Symbol, shapes: Mapping[str, Shape], dtype: str | Mapping[str, str] = "float32"
) -> tuple[dict[str, Shape], list[Shape]]:
    """Shapes of all variables by name, and of the outputs; raises as `from_mxnet` does."""
    from .graph import SymbolImporter

    graph = _graph_of(symbol)
    return SymbolImporter(graph, _shapes(graph, shapes, {}), dtype, {}).infer()


def infer_types(
    symbol: Symbol, shapes: Mapping[str, Shape], dtype: str | Mapping[str, str] = "float32"
) -> list[list[tuple[Shape | None, str | None]]]:
    """Types of all outputs of all nodes, None if unknown; FrontendError if contradictory."""
    from .graph import SymbolImporter

    graph = _graph_of(symbol)
    importer = SymbolImporter(graph, _shapes(graph, shapes, {}), dtype, {})
    return importer.infer_types()


def _graph_of(symbol: Symbol) -> Graph:
    graph = getattr(symbol, "graph", None)
    return graph if isinstance(graph, Graph) else read_json(symbol.tojson()).ordered()


def _shapes(
    graph: Graph,
    shape: Mapping[str, Shape] | Sequence[Shape] | None,
    arrays: Mapping[str, np.ndarray],
) -> dict[str, Shape]:
    """Shapes by variable name: those given, and those of the parameters' values."""
    names = [node.name for node in graph.variables()]
    if isinstance(shape, Mapping):
        given = dict(shape)
        unknown = [name for name in given if name not in names]
        for name in unknown:
            error = FrontendError(f"the symbol has no input {name!r}; inputs: {names}")
            strictness.refuse(error, "its shape is ignored")
            del given[name]
    else:
        inputs = [name for name in names if name not in arrays]
        if shape is not None and len(shape) > len(inputs):
            raise FrontendError(f"{len(shape)} shapes are given for the inputs {inputs}")
        given = dict(zip(inputs, shape or ()))
    for name, extents in given.items():
        valid = isinstance(extents, (tuple, list)) and all(
            isinstance(extent, (int, np.integer)) and extent >= 0 for extent in extents
        )
        if not valid:
            raise FrontendError(f"the shape {extents!r} of input {name!r} is not a tuple of sizes")
        if name in arrays and tuple(extents) != arrays[name].shape:
            raise FrontendError(
                f"parameter {name!r} has the shape {arrays[name].shape}, but {extents} is given"
            )
    known = {name: tuple(int(n) for n in extents) for name, extents in given.items()}
    return {**known, **{name: array.shape for name, array in arrays.items()}}


def host_array(value: Any) -> np.ndarray:
    """An array of numpy, MXNet or TVM as one of numpy."""
    for method in ("asnumpy", "numpy"):
        if hasattr(value, method):
            return np.asarray(getattr(value, method)())
    return np.asarray(value)
