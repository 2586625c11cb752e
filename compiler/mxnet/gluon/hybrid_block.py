"""`HybridBlock`: a block whose `forward` is traced once, partitioned and compiled."""

from __future__ import annotations

import difflib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from compiler.errors import BlockArgumentError, BlockError, BlockTypeError, UnknownShapeError
from compiler.mxnet.symbol.compose import replace_variables
from compiler.mxnet.symbol.optimize import partition_values
from compiler.mxnet.symbol.symbol import Symbol, var
from compiler.mxnet_format.data_dependent import is_dynamic

from ..array.creation import zeros
from ..array.deferred import get_symbol, tracing
from ..array.files import write_model
from ..array.ndarray import ndarray
from ..array.program import Flags, require_bool
from ..array.value import Trace, Variable, call_site, current_trace
from .block import Block, HookHandle
from .cached_op import CachedOp, DynamicOp
from .parameter import Constant, Parameter, Unshaped
from .parameter_dict import ParameterDict
from .pytree import ARRAY, NOTHING, arrays_in, flatten, regroup, strip_none, with_arrays
from .shape_traces import ShapeTraces

_BUILDING = threading.RLock()
"""Blocks are traced one at a time."""

_FLAGS = [each.name for each in fields(Flags)]
_OLD_SPELLING = "backend_opts"

_STATE = (
    *("_active", "_flags", "_cached_graph", "_cached_op", "_in_format", "_out_format", "_symbol"),
    *("_plain_arguments", "_is_partitioned", "_by_shapes", "_backend", "_reg_params"),
)
"""Attributes that a failed `optimize_for` restores."""


class HybridBlock(Block):
    """A block that can be compiled.

    `forward` takes arrays, None and nested lists of them, and returns such. While it is not
    hybridized it runs as it stands. Old code may define `hybrid_forward(F, x, ..., **params)`
    instead: F is `compiler.mxnet.nd`, and the block's own parameters come as keywords; the shape
    of one that is unknown follows from the first operator that reads it.

    Parameters
    ----------
    prefix, params : optional
        See `Block`.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix, params)
        self._active = False
        self._flags = Flags()
        self._backend: tuple[str, dict[str, Any]] | None = None
        self._shapes_ready = False
        self._clear_cache()

    _loses_partition = True
    """Whether hybridizing traces the block anew, without its subgraphs."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without compiled code."""
        return {**self.__dict__, "_cached_op": None}

    @property
    def is_active(self) -> bool:
        """Whether it is hybridized."""
        return self._active

    @property
    def cached_op(self) -> CachedOp | DynamicOp | None:
        """The compiled operator that calls run; None before the first hybridized call."""
        return self._cached_op

    def _clear_cache(self) -> None:
        self._cached_graph: tuple[list[str], Symbol] | None = None
        self._cached_op: CachedOp | DynamicOp | None = None
        self._in_format: Any = None
        self._out_format: Any = None
        self._plain_arguments = 0
        self._is_partitioned = False
        self._by_shapes: ShapeTraces | None = None

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make a hybrid block a child; a trace that was made before is forgotten."""
        if not isinstance(block, HybridBlock):
            raise BlockArgumentError(
                f"children of {type(self).__name__}, a HybridBlock, must be HybridBlocks too, not "
                f"{type(block).__name__}; of nn.Sequential use nn.HybridSequential"
            )
        super().register_child(block, name)
        if self._active:
            self._deactivate("a child was added or replaced")

    def _parameter_replaced(self, name: str) -> None:
        if self._active:
            self._deactivate(f"the parameter {name!r} was replaced")

    def _deactivate(self, why: str) -> None:
        warnings.warn(
            f"{type(self).__name__} is no longer hybridized: {why}. Call hybridize() again",
            stacklevel=3,
        )
        self._active = False
        self._clear_cache()

    def cast(self, dtype: Any) -> None:
        """Change the dtype of the parameters; a hybridized block is traced anew.

        What `optimize_for` partitioned is partitioned no more, and a warning says so.
        """
        if self._active:
            if self._is_partitioned:
                warnings.warn(
                    f"cast() undoes what optimize_for() partitioned of {type(self).__name__}; "
                    "call optimize_for() again",
                    stacklevel=2,
                )
            self._clear_cache()
        super().cast(dtype)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have a hook called after forward; a hybridized block calls it while tracing only."""
        if self._active:
            self._warn_of_hooks()
        return super().register_forward_hook(hook)

    def _warn_of_hooks(self) -> None:
        warnings.warn(
            f"{type(self).__name__} is hybridized: its forward hooks run only while it is traced",
            stacklevel=3,
        )

    # Hybridizing.

    def hybridize(
        self, active: bool = True, *positional: Any, backend: str | None = None, **options: Any
    ) -> None:
        """Set how calls run, and forget what was traced and optimized before.

        Flags come by name, or in the order in which they are listed.

        Parameters
        ----------
        active : bool
            Whether calls run compiled.
        partition_if_dynamic : bool
            Compile each part between operators with data-dependent output shapes (`x[x > 0]`,
            `np.nonzero`, `np.unique`) as one program. With False, every operator is one program.
        static_alloc : bool
            Plan intermediate memory once per signature and keep it between calls.
        static_shape : bool
            Keep one signature at a time; needs `static_alloc`. A call with another signature
            recompiles.
        inline_limit : int
            Inline accepted subgraphs of at most this many operators, so that they fuse with the
            graph around them. Without effect with `static_alloc`, and on subgraphs that their
            backend compiles itself or for another target.
        forward_bulk_size : int, optional
            Number of kernel launches that the virtual machine dispatches as one segment, by
            default all. With `static_alloc` there is always one segment.
        backward_bulk_size : int, optional
            Without effect: Baton computes inference.
        backend, **options : optional
            MXNet 1.x's way to `optimize_for`, with a DeprecationWarning: the first call partitions
            for its inputs.

        Raises
        ------
        BlockArgumentError
            A flag has an invalid value, or options come without a backend; BlockTypeError for an
            unknown argument.
        """
        named = {name: options.pop(name) for name in _FLAGS if name in options}
        if positional and isinstance(positional[0], str):
            raise BlockTypeError(
                f"hybridize takes flags in order, not the backend {positional[0]!r}; call "
                f"optimize_for(x, backend={positional[0]!r})"
            )
        if "clear" in options:
            raise BlockTypeError(
                "hybridize has no argument 'clear', as it always starts over; call "
                "optimize_for(x, backend=..., clear=...)"
            )
        if backend is not None:
            warnings.warn(
                f"hybridize sets flags; partition with optimize_for(x, backend={backend!r}), as "
                "MXNet 2 does",
                DeprecationWarning,
                stacklevel=2,
            )
        unknown = sorted(options.keys() - {_OLD_SPELLING})
        if backend is None and unknown:
            raise BlockTypeError(
                f"hybridize has no argument {unknown[0]!r}; a backend's options come with backend="
            )
        options = _backend_arguments(backend, options)
        require_bool("active", active)
        if (self._forward_hooks or self._forward_pre_hooks) and active:
            self._warn_of_hooks()
        flags = Flags(*positional, **named)
        flags.check()
        self._active = active
        self._flags = flags
        self._backend = None if backend is None else (backend, options)
        if self._is_partitioned and self._loses_partition:
            warnings.warn(
                f"hybridize() undoes what optimize_for() partitioned of {type(self).__name__}; "
                "partition the outermost block, after hybridize()",
                stacklevel=2,
            )
        self._clear_cache()
        super().hybridize(active, **asdict(flags))

    def optimize_for(
        self, x: Any, *args: Any, backend: str | None = None, clear: bool = False, **options: Any
    ) -> None:
        """Trace the block for given inputs and let a backend partition it, without running it.

        A second call partitions what the first one left, so that backends chain.

        Parameters
        ----------
        x, *args
            Inputs, or variables that declare them, of which shapes and dtypes are taken.
        backend : str, optional
            A registered partitioner; None only hybridizes and traces.
        clear : bool
            Start over from a fresh trace, of a SymbolBlock from its symbol.
        partition_if_dynamic, static_alloc, static_shape, inline_limit, forward_bulk_size
        backward_bulk_size
            As for `hybridize`, which is called where the block is not active or `clear` is given.
            A block that is active keeps those that are not given.
        **options
            Handed to the backend's callbacks, whatever their names. `backend_opts={...}` is the
            old spelling of them.

        Raises
        ------
        UnknownBackendError
            No partitioner has that name.
        BlockArgumentError
            The inputs hold no array, arrays on several devices, or another number of arrays than
            the trace; a flag has an invalid value; options come without a backend, or one of them
            is a misspelled flag.
        PartitionError
            A callback failed, or an option is not understood. The block and its children stay as
            they were, whatever was raised.
        """
        if backend is not None and not isinstance(backend, str):
            raise BlockTypeError(f"backend must be a str, not {type(backend).__name__}")
        arguments = with_arrays((x, *args))
        self._check_arguments(arguments)
        require_bool("clear", clear)
        given = {name: options.pop(name) for name in _FLAGS if name in options}
        flags = {name: value for name, value in given.items() if value is not None}
        options = _backend_arguments(backend, options)
        before = [(block, block._state()) for block in self._descendants()]
        try:
            if clear:
                self._is_partitioned = False
                self._forget_partitions()
            if clear or not self._active:
                self.hybridize(True, **flags)
            else:
                self._flags = replace(self._flags, **flags)
                self._flags.check()
            self._prepare_shapes(arguments)
            arrays = self._trace(arguments)
            if backend is not None:
                self._partition(backend, arrays, options)
            self._cached_op = None
            self._build_cached_op()
        except Exception:
            for block, state in before:
                block.__dict__.update(state)
            raise

    def as_symbol(
        self, shapes: Mapping[str, tuple[int, ...]], dtype: str | Mapping[str, str] = "float32"
    ) -> tuple[Symbol, dict[str, ndarray], dict[str, ndarray]]:
        """Trace the block for `relay.frontend.from_mxnet`.

        The block stays as it is, but parameters of unknown shapes are initialized.

        Parameters
        ----------
        shapes : mapping of str to tuple of int
            Name to shape, in the order of the inputs; the symbol has these names.
        dtype : str or mapping of str to str
            Of the inputs: one for all, or by name.

        Returns
        -------
        symbol, values of its arguments but the inputs, auxiliary states
        """
        kinds = dtype if isinstance(dtype, Mapping) else dict.fromkeys(shapes, dtype)
        inputs = tuple(zeros(each, kinds.get(name, "float32")) for name, each in shapes.items())
        before = [(block, block._state()) for block in self._descendants()]
        try:
            self._active = True
            self._prepare_shapes(inputs)
            self._trace(inputs)
            assert self._cached_graph is not None
            names, symbol = self._cached_graph
        finally:
            for block, state in before:
                block.__dict__.update(state)
        values = {n: each.data() for n, each in self.collect_params().items()}
        named = {old: var(new).graph for old, new in zip(names, shapes)}
        states = symbol.list_auxiliary_states()
        args = {n: values[n] for n in symbol.list_arguments() if n in values}
        renamed = Symbol(replace_variables(symbol.graph, named))
        return renamed, args, {n: values[n] for n in states}

    def _forget_partitions(self) -> None:
        """Prepare a fresh trace for `clear`."""

    def _descendants(self) -> Iterator[HybridBlock]:
        """Iterate over the block and its descendants."""
        yield self
        for child in self._children.values():
            if isinstance(child, HybridBlock):
                yield from child._descendants()

    def _state(self) -> dict[str, Any]:
        """Attributes that hybridizing and tracing set."""
        return {name: self.__dict__[name] for name in _STATE if name in self.__dict__}

    def _partition(self, backend: str, arrays: list[ndarray], options: dict[str, Any]) -> None:
        assert self._cached_graph is not None
        names, symbol = self._cached_graph
        device = arrays[0].device
        params = self.collect_params()
        values = dict(zip(names, arrays))
        read = set(symbol.list_inputs())
        values |= {n: param.data(device) for n, param in params.items() if n in read}
        args = {n: values[n]._host() for n in symbol.list_arguments() if n in values}
        aux = {n: values[n]._host() for n in symbol.list_auxiliary_states() if n in values}
        known = {*args, *aux}
        partitioned = partition_values(symbol, backend, args, aux, options)
        added = {n: Constant(value, n) for n, value in {**args, **aux}.items() if n not in known}
        for param in added.values():
            param.initialize(device=device)
        own = ParameterDict(shared=self._reg_params.shared)
        own.update(self._reg_params | added)
        self._reg_params = own
        self._cached_graph = names, partitioned
        self._is_partitioned = True

    # Calls.

    def __call__(self, *args: Any) -> Any:
        """Run the block: compiled where it is hybridized, else `forward` as it stands."""
        op = self._cached_op
        if (
            op is not None
            and len(args) == self._plain_arguments
            and self._by_shapes is None
            and current_trace() is None
        ):
            for array in args:
                if type(array) is not ndarray:
                    break
            else:
                results = op(args)
                return results[0] if self._out_format == ARRAY else self._regroup(results)
        self._check_arguments(args)
        if current_trace() is not None or not self._active:
            self._prepare_shapes(args)
            return super().__call__(*args)
        return self._call_compiled(args)

    def _call_compiled(self, args: tuple[Any, ...]) -> Any:
        if self._cached_op is None:
            with _BUILDING:
                if self._cached_op is None:
                    self._prepare_shapes(args)
                    arrays = self._trace(args)
                    if self._backend is not None and not self._is_partitioned:
                        self._partition(self._backend[0], arrays, self._backend[1])
                    self._build_cached_op()
        arrays, format = flatten(list(args), "input")
        if self._by_shapes is not None:
            block = self._by_shapes.block_for(self, args, arrays)
            if block is not self:
                return block._call_compiled(args)
        self._require_format(format)
        assert self._cached_op is not None
        return self._regroup(self._cached_op(arrays))

    def _require_format(self, format: Any) -> None:
        if format != self._in_format and strip_none(format) != strip_none(self._in_format):
            raise BlockArgumentError(
                f"the argument structure of {type(self).__name__} does not match the traced one: "
                f"stored format = {self._in_format}, input format = {format}"
            )

    def _regroup(self, results: list[ndarray]) -> Any:
        return regroup(iter(results), self._out_format)

    def _check_arguments(self, args: tuple[Any, ...]) -> None:
        leaves = list(arrays_in(args))
        for leaf in leaves:
            if isinstance(leaf, Symbol):
                raise BlockTypeError(
                    f"{call_site()}: {type(self).__name__} takes arrays of compiler.mxnet.np, not "
                    "a Symbol; make a SymbolBlock of a Symbol"
                )
        arrays = [leaf for leaf in leaves if isinstance(leaf, ndarray)]
        if not arrays:
            raise BlockArgumentError(
                f"{call_site()}: {type(self).__name__} needs at least one array among its "
                f"arguments, not only {[type(leaf).__name__ for leaf in leaves]}"
            )
        devices = {array.device for array in arrays}
        if len(devices) > 1 and (self._active or current_trace() is not None):
            raise BlockArgumentError(
                f"{call_site()}: found arguments on several devices {sorted(map(repr, devices))}; "
                "a hybridized block takes one"
            )

    def forward(self, *args: Any) -> Any:
        """Compute the outputs; by default through `hybrid_forward` of MXNet 1.x."""
        old = getattr(self, "hybrid_forward", None)
        if old is None:
            return super().forward(*args)
        from .. import nd

        device = next(leaf.device for leaf in arrays_in(args) if isinstance(leaf, ndarray))
        own = {
            name: param.data(device) if param.is_known else Unshaped(param, device)
            for name, param in self._reg_params.items()
        }
        return old(nd, *args, **own)

    def infer_shape(self, *args: Any) -> None:
        """Set the shapes of the block's own parameters from the inputs'; layers override it.

        Raises
        ------
        BlockError
            An own parameter's shape is unknown, and the block has no `hybrid_forward`.
        """
        if hasattr(self, "hybrid_forward"):
            return
        unknown = [name for name, param in self._reg_params.items() if not param.is_known]
        if unknown:
            raise BlockError(
                f"{type(self).__name__} has parameters with unknown shape ({', '.join(unknown)}); "
                "give the shape in __init__, or define infer_shape(), which sets it from the inputs"
            )

    def _prepare_shapes(self, args: tuple[Any, ...]) -> None:
        """Once: let the block set its own parameters' shapes, and initialize them."""
        if self._shapes_ready:
            return
        with tracing(None):
            self.infer_shape(*args)
            for param in self._reg_params.values():
                if param.is_known or not hasattr(self, "hybrid_forward"):
                    param.finish_deferred_init()
        self._shapes_ready = True

    # Tracing.

    def _trace(self, args: tuple[Any, ...]) -> list[ndarray]:
        """Make the symbol, unless there is one; returns the flat arguments."""
        arrays, in_format = flatten(list(args), "input")
        if self._cached_graph is not None:
            self._require_format(in_format)
            return arrays
        names = ["data"] if len(arrays) == 1 else [f"data{i}" for i in range(len(arrays))]
        given = [array.detach() for array in arrays]
        for array, name in zip(given, names):
            array._value.variable = Variable(name)
        params = self.collect_params()
        for name, param in params.items():
            param._variable.name = name  # of several names the last
        with tracing(Trace(type(self).__name__)) as trace:
            result = super().__call__(*regroup(iter(given), in_format))
            outputs, out_format = flatten(result, "output")
            self._reject_none(out_format)
            symbol = get_symbol(outputs)
        self._warn_of_unused(symbol, names, params)
        self._in_format, self._out_format = in_format, out_format
        self._cached_graph = names, symbol
        if trace is not None and trace.shape_read:
            self._by_shapes = ShapeTraces(trace.shape_read, [array.shape for array in arrays])
        return arrays

    def _reject_none(self, out_format: Any) -> None:
        if NOTHING in list(arrays_in(out_format)):
            raise BlockArgumentError(
                f"the forward of {type(self).__name__} returns None among its outputs, which a "
                "hybridized block can't"
            )

    def _warn_of_unused(
        self, symbol: Symbol, names: list[str], params: dict[str, Parameter]
    ) -> None:
        read = set(symbol.list_inputs())
        for position, name in enumerate(names):
            if name not in read:
                warnings.warn(
                    f"the {position}-th input to {type(self).__name__} is not used by any "
                    "computation. Is this intended?",
                    stacklevel=4,
                )
        used = {id(param) for name, param in params.items() if name in read}
        for name, param in params.items():
            if id(param) not in used:
                warnings.warn(
                    f"parameter {name} is not used by any computation. Is this intended?",
                    stacklevel=4,
                )

    def _build_cached_op(self) -> None:
        assert self._cached_graph is not None
        names, symbol = self._cached_graph
        try:
            kind = DynamicOp if is_dynamic(symbol.graph) else CachedOp
            op = kind(symbol, names, self.collect_params(), self._flags)
        except UnknownShapeError as error:
            raise BlockArgumentError(str(error)) from error
        plain = isinstance(self._in_format, list) and all(f == ARRAY for f in self._in_format)
        self._plain_arguments = len(self._in_format) if plain else -1
        self._cached_op = op

    def export(
        self, path: str | os.PathLike[str] | None, epoch: int = 0, remove_amp_cast: bool = True
    ) -> tuple[Any, Any]:
        """Write the traced, perhaps partitioned, symbol and the parameters it reads.

        Parameters
        ----------
        path : path or None
            Prefix of the files; None returns the symbol and a dict of arrays instead.
        epoch : int
            Part of the parameter file's name.
        remove_amp_cast : bool
            Accepted; there are no such operators in a trace.

        Returns
        -------
        `<path>-symbol.json` and `<path>-<epoch>.params`, the latter None without parameters.

        Raises
        ------
        BlockError
            The block has not been traced.
        ExportError
            A file can't be written.
        """
        if self._cached_graph is None:
            raise BlockError(
                f"{type(self).__name__} has not been traced; call hybridize() and the block once, "
                "or optimize_for(), before export()"
            )
        symbol = self._cached_graph[1]
        states, read = set(symbol.list_auxiliary_states()), set(symbol.list_inputs())
        arrays = {
            ("aux:" if name in states else "arg:") + name: param.list_data()[0]
            for name, param in self.collect_params().items()
            if name in read
        }
        return (symbol, arrays) if path is None else write_model(path, epoch, symbol, arrays)


def _backend_arguments(backend: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The backend's options; in `given`, MXNet 1.x's "backend_opts" is a dict of them.

    Raises BlockArgumentError: there are options, but no backend; one looks like a flag's name; or
    one is given twice.
    """
    options = dict(given)
    old = options.pop(_OLD_SPELLING, {})
    if not isinstance(old, Mapping) or not all(isinstance(name, str) for name in old):
        raise BlockArgumentError(f"{_OLD_SPELLING} must be a dict of options, not {old!r:.60}")
    twice = sorted(set(old) & set(options))
    if twice:
        raise BlockArgumentError(f"the option {twice[0]!r} is in {_OLD_SPELLING} too")
    options |= old
    if options and backend is None:
        raise BlockArgumentError(
            f"{sorted(options)} are options of a backend, but no backend is given"
        )
    for name in options:
        like = difflib.get_close_matches(name, [*_FLAGS, "clear"], n=1, cutoff=0.85)
        if like:
            raise BlockArgumentError(
                f"optimize_for has no flag {name!r}; did you mean {like[0]!r}?"
            )
    return options
