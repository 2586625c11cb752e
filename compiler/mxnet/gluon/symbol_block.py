"""`SymbolBlock`: a block made of a symbol, for example of one that was exported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.errors import BlockArgumentError, BlockTypeError
from compiler.mxnet.symbol.symbol import Symbol, group, load, var
from compiler.mxnet_format.attributes import STORAGE_TYPES

from ..array.invoke import invoke
from ..array.ndarray import ndarray
from ..array.value import current_trace
from .block import Block
from .hybrid_block import HybridBlock
from .parameter import Parameter
from .pytree import ARRAY, flatten


class SymbolBlock(HybridBlock):
    """A symbol as a block. It always runs compiled, hybridized or not.

    `optimize_for(clear=True)` goes back to the symbol that the block was made of; `hybridize` keeps
    what was partitioned. In the `forward` of another block that is traced its operators become
    part of that trace.

    Parameters
    ----------
    outputs : Symbol or list of Symbol
    inputs : Symbol or list of Symbol
        The variables that calls give, in order.
    params : dict of str to Parameter, optional
        The others; those that are missing become uninitialized parameters.

    Raises
    ------
    OutOfScopeError
        A variable is declared to be sparse.
    """

    def __init__(
        self, outputs: Any, inputs: Any, params: Mapping[str, Parameter] | None = None
    ) -> None:
        super().__init__()
        symbol = outputs if isinstance(outputs, Symbol) else group(outputs)
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
                storage = _variable_of(symbol, name).attr("__storage_type__") or "0"
                stype = STORAGE_TYPES[int(storage)] if storage in ("1", "2") else "default"
                param = Parameter(name, kind, allow_deferred_init=True, stype=stype)
            if not isinstance(param, Parameter):
                raise BlockTypeError(
                    f"params[{name!r}] is a {type(param).__name__}, not a Parameter; give arrays "
                    "to load_dict"
                )
            param.rename(name)
            self._reg_params[name] = param
        self._data_names = names
        self._symbol = self._given = symbol
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
        if param_file is not None:
            rest = allow_missing, ignore_extra, "", True, "saved", ctx
            block.collect_params().load(param_file, device, *rest)
        return block

    def __repr__(self) -> str:
        outputs = ", ".join(self._symbol.list_outputs()[:4])
        counts = f"{len(self._data_names)} inputs, {len(self._reg_params)} parameters"
        return f"SymbolBlock(\n{outputs} : {counts}\n)"

    _loses_partition = False

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

    def _forget_partitions(self) -> None:
        self._symbol = self._given
        self._restore()

    def cast(self, dtype: Any) -> None:
        """Change the dtype of the parameters; what was partitioned stays so."""
        self._cached_op = None
        Block.cast(self, dtype)

    def forward(self, *args: Any) -> Any:
        """Run the symbol."""
        return self._call_compiled(args)

    def __call__(self, *args: Any) -> Any:
        """Run the symbol, or record its operators where another block is traced."""
        if self._cached_op is None:
            self._check_arguments(args)
        if current_trace() is not None:
            return self._recorded(args)
        return super().__call__(*args) if self._active else self._call_compiled(args)

    def _recorded(self, args: tuple[Any, ...]) -> Any:
        """Record the symbol's operators on arrays and the block's parameters."""
        arrays, format = flatten(list(args), "input")
        self._require_format(format)
        self._prepare_shapes(args)
        data = dict(zip(self._data_names, arrays))
        device = arrays[0].device
        graph = self._symbol.graph
        found: dict[tuple[int, int], ndarray] = {}
        for index, node in enumerate(graph.nodes):
            if node.is_variable:
                given = data.get(node.name)
                results = [self._reg_params[node.name].data(device) if given is None else given]
            else:
                inputs = [found[entry.node, entry.output] for entry in node.inputs]
                bodies = node.subgraphs
                results = invoke(node.op, inputs, node.attrs, subgraphs=bodies, name=node.name)
            found.update({(index, output): array for output, array in enumerate(results)})
        return self._regroup([found[head.node, head.output] for head in graph.heads])

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


def _variable_name(symbol: Symbol) -> str:
    if len(symbol) != 1 or not symbol.graph.nodes[symbol.graph.heads[0].node].is_variable:
        raise BlockArgumentError("the inputs of a SymbolBlock must be variables")
    return symbol.graph.nodes[symbol.graph.heads[0].node].name


def _variable_of(symbol: Symbol, name: str) -> Symbol:
    found = next(node for node in symbol.graph.variables() if node.name == name)
    return var(name, found.attrs)
