"""`SymbolBlock`: a block made of a symbol, for example of one that was exported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from compiler.errors import BlockArgumentError, BlockError, FrontendError
from compiler.mxnet.graph import Graph
from compiler.symbol.symbol import Symbol, load, var

from .files import read_arrays
from .hybrid_block import HybridBlock
from .ndarray import ndarray
from .parameter import Parameter
from .structure import ARRAY, flatten
from .value import current_trace


class SymbolBlock(HybridBlock):
    """A symbol as a block. It always runs compiled, hybridised or not.

    `hybridize` and `optimize_for(clear=True)` do not undo a partitioning: the symbol is all there
    is; load it again.

    Parameters
    ----------
    outputs : Symbol or list of Symbol
    inputs : Symbol or list of Symbol
        The variables that calls give, in order.
    params : dict of str to Parameter, optional
        The others; those that are missing become uninitialised parameters.
    """

    def __init__(
        self, outputs: Any, inputs: Any, params: Mapping[str, Parameter] | None = None
    ) -> None:
        super().__init__()
        symbol = outputs if isinstance(outputs, Symbol) else _group(outputs)
        given = [inputs] if isinstance(inputs, Symbol) else list(inputs)
        names = [_variable_name(each) for each in given]
        listed = symbol.list_inputs()
        states = set(symbol.list_auxiliary_states())
        for name in listed:
            if name in names:
                continue
            param = (params or {}).get(name)
            if param is None:
                kind = "null" if name in states else "write"
                param = Parameter(name, kind, allow_deferred_init=True)
            param.rename(name)
            self._reg_params[name] = param
        self._data_names = names
        self._symbol = symbol
        self._restore()

    @staticmethod
    def imports(
        symbol_file: str | os.PathLike[str],
        input_names: str | Sequence[str],
        param_file: str | os.PathLike[str] | None = None,
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        ctx: Any = None,
    ) -> SymbolBlock:
        """Read an exported model.

        Parameters
        ----------
        symbol_file : path
            `<prefix>-symbol.json`.
        input_names : str or list of str
            Variables that calls give.
        param_file : path, optional
            `<prefix>-<epoch>.params`, of any MXNet version, or `.npz`, `.safetensors`.
        device, ctx : Device, optional
        allow_missing, ignore_extra : bool
            Whether the file may lack parameters, or have others.

        Raises
        ------
        FrontendError
            A file can't be read.
        BlockArgumentError
            The symbol has no such input, or the parameters do not fit.
        """
        symbol = load(symbol_file)
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        unknown = [name for name in names if name not in symbol.list_inputs()]
        if unknown:
            raise BlockArgumentError(
                f"{os.fspath(symbol_file)!r} has no input {unknown[0]!r}; it has "
                f"{symbol.list_inputs()}"
            )
        block = SymbolBlock(symbol, [_variable_of(symbol, name) for name in names])
        if param_file is None:
            return block
        arrays = read_arrays(param_file)
        if not isinstance(arrays, Mapping):
            raise FrontendError(f"the parameter file {os.fspath(param_file)!r} has no names")
        found = {name.removeprefix("arg:").removeprefix("aux:"): a for name, a in arrays.items()}
        block.load_dict(
            found,
            device if device is not None else ctx,
            allow_missing,
            ignore_extra,
            cast_dtype=True,
            dtype_source="saved",
            source=f"file {os.fspath(param_file)!r}",
        )
        return block

    def __repr__(self) -> str:
        outputs = ", ".join(self._symbol.list_outputs()[:4])
        counts = f"{len(self._data_names)} inputs, {len(self._reg_params)} parameters"
        return f"SymbolBlock(\n{outputs} : {counts}\n)"

    def _restore(self) -> None:
        self._cached_graph = self._data_names, self._symbol
        self._in_format = [ARRAY] * len(self._data_names)
        self._out_format = ARRAY if len(self._symbol) == 1 else [ARRAY] * len(self._symbol)

    def _clear_cache(self) -> None:
        kept = getattr(self, "_cached_graph", None)
        super()._clear_cache()
        if kept is not None:
            self._symbol = kept[1]
            self._restore()

    def cast(self, dtype: Any) -> None:
        """Change the dtype of the parameters."""
        self._cached_op = None
        super().cast(dtype)

    def forward(self, *args: Any) -> Any:
        """Run the symbol."""
        return self._call_compiled(args)

    def __call__(self, *args: Any) -> Any:
        """Run the symbol.

        Raises
        ------
        BlockError
            The forward of another block is being traced.
        """
        if current_trace() is not None:
            raise BlockError(
                "a SymbolBlock can't be called while the forward of another block is traced; "
                "call it outside, or make one SymbolBlock of the whole"
            )
        if self._cached_op is None:
            self._check_arguments(args)
        return super().__call__(*args) if self._active else self._call_compiled(args)

    def infer_shape(self, *args: Any) -> None:
        """Deduce the parameters' shapes from the inputs' by the operators' rules."""
        arrays, _ = flatten(list(args), "input")
        unknown = [name for name, param in self._reg_params.items() if not param.is_known]
        if not unknown:
            return
        shapes = {name: array.shape for name, array in zip(self._data_names, arrays)}
        shapes |= {n: p.shape for n, p in self._reg_params.items() if p.is_known and p.shape}
        from compiler.relay.frontend.mxnet import infer_shapes

        found, _ = infer_shapes(self._symbol, shapes)
        for name in unknown:
            self._reg_params[name].shape = found[name]

    def _trace(self, args: tuple[Any, ...]) -> list[ndarray]:
        arrays, _ = flatten(list(args), "input")
        return arrays


def _group(outputs: Sequence[Symbol]) -> Symbol:
    """One symbol of several; nodes that they have in common stay in common by name."""
    nodes: list[Any] = []
    heads: list[Any] = []
    place: dict[tuple[str, str], int] = {}
    attrs: dict[str, Any] = {}
    for symbol in outputs:
        graph = symbol.graph
        attrs |= graph.attrs
        moved: list[int] = []
        for node in graph.nodes:
            key = (node.op, node.name)
            if key not in place:
                place[key] = len(nodes)
                inputs = [entry._replace(node=moved[entry.node]) for entry in node.inputs]
                nodes.append(replace(node, inputs=inputs))
            moved.append(place[key])
        heads += [head._replace(node=moved[head.node]) for head in graph.heads]
    return Symbol(Graph(nodes, heads, attrs))


def _variable_name(symbol: Symbol) -> str:
    if len(symbol) != 1 or not symbol.graph.nodes[symbol.graph.heads[0].node].is_variable:
        raise BlockArgumentError("the inputs of a SymbolBlock must be variables")
    return symbol.graph.nodes[symbol.graph.heads[0].node].name


def _variable_of(symbol: Symbol, name: str) -> Symbol:
    found = next(node for node in symbol.graph.variables() if node.name == name)
    return var(name, found.attrs)
