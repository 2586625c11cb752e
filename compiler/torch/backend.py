"""The compile function of the `torch.compile` backend.

Dynamic extents (`dynamic=True`, `torch._dynamo.mark_dynamic`, or a second shape) become symbolic
extents of one library that serves all shapes.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from compiler.errors import FrontendError, InputError, UnsupportedOperatorError
from compiler.runtime.thread_pool import require_thread_count

logger = logging.getLogger("baton.torch")


@dataclass(frozen=True)
class Options:
    """Options of `torch.compile(..., options={...})`."""

    target: str = "llvm"  # target of the build; must be a CPU
    opt_level: int = 3
    disabled_pass: Sequence[str] = ()
    precision: str = "default"  # "default" or "strict", as the PassContext's key "baton.precision"
    # Threads that work on one call; PyTorch's number of them by default
    num_threads: int | None = None
    # Build one library per set of shapes even for dynamic extents; such libraries run faster
    per_shape: bool = False


def baton(
    graph: torch.fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured.

    The first call with new shapes builds a library from the current weights. The graph is rebuilt
    when a weight changes. If dynamic extents can't be symbolic, a warning is logged and each set of
    shapes gets its own library.

    Parameters
    ----------
    graph : torch.fx.GraphModule
    examples : sequence
        Values or fake tensors of the graph's arguments.
    options : dict, optional
        Fields of `Options`.
    mode : str, optional
        Unsupported: modes belong to PyTorch's own compiler.

    Returns
    -------
    call : callable
        Takes the graph's arguments and returns its results.

    Raises
    ------
    InputError
        Unknown option or unsupported mode.
    FrontendError
        The graph needs gradients, or a tensor is not in CPU memory.
    UnsupportedOperatorError
        On a call: an operator can't be imported, or the graph writes into its arguments.
    """
    if mode not in (None, "default"):
        raise InputError(f'backend="baton" has no mode {mode!r}; it has options')
    known = Options.__dataclass_fields__
    for name in options or {}:
        if name not in known:
            raise InputError(
                f'backend="baton" has no option {name!r}; it has {", ".join(sorted(known))}'
            )
    chosen = Options(**(options or {}))
    if chosen.num_threads is not None:
        require_thread_count("num_threads", chosen.num_threads)
    tensors = [value for value in examples if isinstance(value, torch.Tensor)]
    weights = [*graph.parameters(), *graph.buffers()]  # arguments as well from PyTorch 2.5 on
    if torch.is_grad_enabled() and any(each.requires_grad for each in [*tensors, *weights]):
        raise FrontendError(
            'backend="baton" compiles inference; call the model under torch.no_grad() or '
            "torch.inference_mode(), or train with another backend"
        )
    for tensor in [*tensors, *weights]:
        if tensor.device.type != "cpu":
            raise FrontendError(
                f'backend="baton" takes tensors in the CPU\'s memory, not on {tensor.device}'
            )
    fixed = [index for index, value in enumerate(examples) if _is_weight(value)]
    return _Compiled(graph, examples, fixed, chosen)


class _Compiled:
    """A graph and the libraries built for it."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        examples: Sequence[Any],
        fixed: Sequence[int],
        options: Options,
    ):
        self._graph = graph
        self._fixed = tuple(fixed)
        fakes = _fakes(graph, examples)
        self._open = {} if options.per_shape else _open_axes(fakes, fixed)
        self._extents = _extents(fakes, self._open)
        self._numbers = _numbers(graph)
        self._options = options
        self._libraries: list[_Library] = []
        self._stamps: tuple[Any, ...] = ()
        self._lock = threading.Lock()

    def __call__(self, *tensors: Any) -> Any:
        arguments = list(tensors)
        for index in self._numbers:
            arguments[index] = arguments[index].item()
        stamps = tuple(_stamp(arguments[index]) for index in self._fixed)
        with self._lock:
            if stamps != self._stamps:
                if self._libraries:
                    logger.info("weights changed; rebuilding the graph")
                self._libraries.clear()
                self._stamps = stamps
            library = next((each for each in self._libraries if each.takes(arguments)), None)
            if library is None:
                library = self._build(arguments)
                self._libraries.append(library)
        return library.run(arguments)

    def _build(self, arguments: Sequence[Any]) -> _Library:
        frozen = _Frozen(self._graph, self._fixed, arguments, self._extents)
        if self._open:
            try:
                return _build(frozen, arguments, self._open, self._options)
            except Exception as error:  # from PyTorch's export or from the build
                logger.warning(
                    "dynamic extents can't be symbolic; building one library per set of shapes: %s",
                    (str(error).strip().splitlines() or [type(error).__name__])[0],
                )
                self._open, self._extents = {}, {}
                frozen = _Frozen(self._graph, self._fixed, arguments, self._extents)
        return _build(frozen, arguments, self._open, self._options)


@dataclass(frozen=True)
class _Library:
    """A compiled graph for one set of argument patterns."""

    # One per argument: a tensor's dtype and shape, where a name is a dynamic extent, or a number.
    # None matches any value.
    patterns: Sequence[Any]
    run: Callable[[Sequence[Any]], Any]  # maps the arguments to the results

    def takes(self, arguments: Sequence[Any]) -> bool:
        """Whether the patterns match the arguments."""
        values: dict[str, int] = {}
        for pattern, value in zip(self.patterns, arguments):
            if isinstance(pattern, tuple):
                dtype, shape = pattern
                if dtype != value.dtype or len(shape) != value.dim():
                    return False
                for known, extent in zip(shape, value.shape):
                    if extent != (
                        values.setdefault(known, extent) if isinstance(known, str) else known
                    ):
                        return False
            elif pattern is not None and pattern != value:
                return False
        return True


class _Frozen(torch.nn.Module):
    """A module of the remaining tensors, with weights and numbers of the graph embedded.

    `free`: indices of the remaining tensors among the graph's arguments. `numbers`: embedded
    numbers by argument index.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        fixed: Sequence[int],
        arguments: Sequence[Any],
        extents: Mapping[int, tuple[int, int]],
    ):
        super().__init__()
        self._graph = _with_numbers(graph, arguments)
        self._fixed = tuple(fixed)
        self._extents = dict(extents)
        self.numbers: dict[int, Any] = {}
        self.free: list[int] = []
        for index, value in enumerate(arguments):
            if index in fixed:
                self.register_buffer(f"weight{index}", value.detach())
            elif isinstance(value, torch.Tensor):
                self.free.append(index)
            elif index not in extents:
                self.numbers[index] = value
        self._count = len(arguments)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Run the graph."""
        merged: dict[int, Any] = dict(zip(self.free, tensors)) | self.numbers
        merged |= {index: getattr(self, f"weight{index}") for index in self._fixed}
        for index, (tensor, axis) in self._extents.items():
            merged[index] = merged[tensor].shape[axis]
        return self._graph(*(merged[index] for index in range(self._count)))


def _build(
    frozen: _Frozen,
    arguments: Sequence[Any],
    open_axes: Mapping[int, Sequence[int]],
    options: Options,
) -> _Library:
    """Build a library for arguments of these shapes; `open_axes` are dynamic."""
    from compiler import PassContext, relay

    free = frozen.free
    axes = tuple({axis: _any_extent() for axis in open_axes.get(index, ())} for index in free)
    with torch.inference_mode(False), torch.no_grad():
        program = torch.export.export(
            frozen,
            tuple(arguments[index].detach() for index in free),
            dynamic_shapes=(axes,) if open_axes else None,
            strict=False,
        )
    _reject_writes(program)
    results, structure = _pytree.tree_flatten(program.graph_module.graph.output_node().args[0])
    indices = dict(zip(program.graph_signature.user_inputs, free, strict=True))
    patterns = _patterns(program, indices, frozen.numbers, len(arguments))
    if not any(isinstance(value, torch.fx.Node) for value in results):
        return _Library(patterns, lambda _: _pytree.tree_unflatten(results, structure))
    mod, params = relay.frontend.from_pytorch(program)
    config = {"baton.precision": options.precision}
    with PassContext(options.opt_level, disabled_pass=list(options.disabled_pass), config=config):
        library = relay.build(mod, target=options.target, params=params)
    count = torch.get_num_threads() if options.num_threads is None else options.num_threads
    session = library.session(num_threads=count)
    inputs = {info.name: indices[info.name] for info in session.inputs}
    outputs = [info.name for info in session.outputs]
    examples = [
        value.meta["val"] if isinstance(value, torch.fx.Node) else None for value in results
    ]

    def run(given: Sequence[Any]) -> Any:
        values = session.run({name: _array(given[index]) for name, index in inputs.items()})
        arrays = iter(values[name] for name in outputs)
        leaves = [
            constant if example is None else _result(next(arrays), example)
            for constant, example in zip(results, examples)
        ]
        return _pytree.tree_unflatten(leaves, structure)

    return _Library(patterns, run)


def _patterns(
    program: torch.export.ExportedProgram,
    indices: Mapping[str, int],
    numbers: Mapping[int, Any],
    count: int,
) -> list[Any]:
    """The argument patterns of a program; see `_Library`."""
    patterns: list[Any] = [numbers.get(index) for index in range(count)]
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in indices:
            value = node.meta["val"]
            shape = tuple(
                int(extent) if str(extent).isdigit() else str(extent) for extent in value.shape
            )
            patterns[indices[node.name]] = value.dtype, shape
    return patterns


def _any_extent() -> Any:
    """Mark an extent as dynamic unless the program requires a fixed value."""
    try:
        return torch.export.Dim.AUTO
    except AttributeError as error:
        raise FrontendError("dynamic extents need PyTorch 2.6 or newer") from error


def _fakes(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> list[Any]:
    """The fake arguments that Dynamo traced, with symbolic extents."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [
        node.meta.get("example_value", example) for node, example in zip(placeholders, examples)
    ]


def _open_axes(examples: Sequence[Any], fixed: Sequence[int]) -> dict[int, list[int]]:
    """Dynamic axes by argument index."""
    found = {
        index: [axis for axis, extent in enumerate(value.shape) if not isinstance(extent, int)]
        for index, value in enumerate(examples)
        if isinstance(value, torch.Tensor) and index not in fixed
    }
    return {index: axes for index, axes in found.items() if axes}


def _extents(
    examples: Sequence[Any], open_axes: Mapping[int, Sequence[int]]
) -> dict[int, tuple[int, int]]:
    """Number arguments that are dynamic extents: argument index to (tensor index, axis)."""
    known = {
        examples[index].shape[axis].node.expr: (index, axis)
        for index, axes in open_axes.items()
        for axis in axes
    }
    return {
        index: known[value.node.expr]
        for index, value in enumerate(examples)
        if isinstance(value, torch.SymInt) and value.node.expr in known
    }


def _reject_writes(program: torch.export.ExportedProgram) -> None:
    """Raise UnsupportedOperatorError if a program mutates its arguments or buffers."""
    writes = [
        node
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    ]
    if not writes:
        return
    signature = program.run_decompositions({}).graph_signature  # says where the writes end up
    changed = {**signature.user_inputs_to_mutate, **signature.buffers_to_mutate}
    if changed:
        raise UnsupportedOperatorError(
            'backend="baton": the graph writes into its argument or buffer '
            f"{sorted(changed.values())[0]!r}; use model.eval(), or write outside of it"
        )


def _numbers(graph: torch.fx.GraphModule) -> list[int]:
    """Arguments that are Python numbers passed as tensors by Dynamo."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [
        index
        for index, node in enumerate(placeholders)
        if node.users and all(user.target == "item" for user in node.users)
    ]


def _with_numbers(graph: torch.fx.GraphModule, arguments: Sequence[Any]) -> torch.fx.GraphModule:
    """Replace the `item` calls on number arguments with the numbers."""
    changed = copy.deepcopy(graph)
    placeholders = [node for node in changed.graph.nodes if node.op == "placeholder"]
    for index in _numbers(changed):
        for user in list(placeholders[index].users):
            user.replace_all_uses_with(arguments[index])
            changed.graph.erase_node(user)
    changed.recompile()
    return changed


def _is_weight(value: Any) -> bool:
    """Whether an argument is a parameter or buffer of a module."""
    return isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def _stamp(tensor: torch.Tensor) -> tuple[int, int]:
    """An identity that changes when the tensor's values may have changed."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as a numpy array, without a copy where possible."""
    plain = tensor.detach()
    if plain.dtype is torch.bfloat16:
        import ml_dtypes

        bits: np.ndarray = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    return plain.resolve_conj().resolve_neg().numpy()


def _result(array: np.ndarray, example: Any) -> Any:
    """Convert a result to the type of `example`."""
    if not isinstance(example, torch.Tensor):
        return array.item()
    if example.dtype is torch.bfloat16:
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array).to(example.dtype)
