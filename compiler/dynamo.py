"""Baton as a backend of `torch.compile`: inference on the CPU, one library for each set of shapes.

    compiled = torch.compile(model, backend="baton", options={"precision": "strict"})
    with torch.no_grad():
        scores = compiled(image)

PyTorch finds the backend by its entry point where Baton is installed; elsewhere import this module.
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

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """What `torch.compile(..., options={...})` may give.

    Attributes
    ----------
    target : str
        Of the build; it must be a CPU's.
    opt_level : int
    disabled_pass : sequence of str
    precision : str
        "default" or "strict", as the PassContext's key "baton.precision".
    num_threads : int, optional
        Threads that work on one call; PyTorch's number of them by default.
    """

    target: str = "llvm"
    opt_level: int = 3
    disabled_pass: Sequence[str] = ()
    precision: str = "default"
    num_threads: int | None = None


def baton(
    graph: torch.fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured.

    The library is built at the first call with new shapes, from the values that the weights have
    then. A weight that changes afterwards has it built again.

    Parameters
    ----------
    graph : torch.fx.GraphModule
    examples : sequence
        Values or stand-ins of its arguments.
    options : dict, optional
        Fields of `Options`.
    mode : str, optional
        Not taken: modes are of PyTorch's own compiler.

    Returns
    -------
    call : callable
        Of the same arguments; returns the graph's results.

    Raises
    ------
    InputError
        There is no such option.
    FrontendError
        The graph needs gradients, or a tensor is not in the CPU's memory.
    UnsupportedOperatorError
        When called: an operator can't be imported, or the graph writes into its arguments.
    """
    if mode not in (None, "default"):
        raise InputError(f'backend="baton" has no mode {mode!r}; it has options')
    known = Options.__dataclass_fields__
    for name in options or {}:
        if name not in known:
            raise InputError(
                f'backend="baton" has no option {name!r}; it has {", ".join(sorted(known))}'
            )
    tensors = [value for value in examples if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise FrontendError(
            'backend="baton" compiles inference; call the model under torch.no_grad() or '
            "torch.inference_mode(), or train with another backend"
        )
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise FrontendError(
                f'backend="baton" takes tensors in the CPU\'s memory, not on {tensor.device}'
            )
    fixed = [index for index, value in enumerate(examples) if _is_weight(value)]
    return _Compiled(graph, fixed, Options(**(options or {})))


class _Compiled:
    """A graph, and its libraries by the shapes of the arguments."""

    def __init__(self, graph: torch.fx.GraphModule, fixed: Sequence[int], options: Options):
        self._graph = graph
        self._fixed = tuple(fixed)
        self._numbers = _numbers(graph)
        self._options = options
        self._libraries: dict[Any, Callable[[Sequence[Any]], Any]] = {}
        self._stamps: tuple[Any, ...] = ()
        self._lock = threading.Lock()

    def __call__(self, *tensors: Any) -> Any:
        arguments = list(tensors)
        for index in self._numbers:
            arguments[index] = arguments[index].item()
        stamps = tuple(_stamp(arguments[index]) for index in self._fixed)
        key = tuple(
            (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value
            for value in arguments
        )
        with self._lock:
            if stamps != self._stamps:
                if self._libraries:
                    logger.info("weights have changed; the graph is built again")
                self._libraries.clear()
                self._stamps = stamps
            if key not in self._libraries:
                self._libraries[key] = _build(self._graph, self._fixed, arguments, self._options)
            run = self._libraries[key]
        return run(arguments)


class _Frozen(torch.nn.Module):
    """A graph with its weights and numbers in it, as a module of the other tensors."""

    def __init__(self, graph: torch.fx.GraphModule, fixed: Sequence[int], arguments: Sequence[Any]):
        super().__init__()
        self._graph = _with_numbers(graph, arguments)
        self._constants: dict[int, Any] = {}
        for index, value in enumerate(arguments):
            if index in fixed:
                self.register_buffer(f"weight{index}", value.detach())
            elif not isinstance(value, torch.Tensor):
                self._constants[index] = value
        self._fixed = tuple(fixed)
        self._count = len(arguments)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The graph's results."""
        rest = iter(tensors)
        merged = [
            getattr(self, f"weight{index}")
            if index in self._fixed
            else self._constants[index]
            if index in self._constants
            else next(rest)
            for index in range(self._count)
        ]
        return self._graph(*merged)


def _build(
    graph: torch.fx.GraphModule, fixed: Sequence[int], arguments: Sequence[Any], options: Options
) -> Callable[[Sequence[Any]], Any]:
    """What runs a graph for arguments of these shapes."""
    from compiler import PassContext, relay

    free = [
        index
        for index, value in enumerate(arguments)
        if isinstance(value, torch.Tensor) and index not in fixed
    ]
    with torch.inference_mode(False), torch.no_grad():
        program = torch.export.export(
            _Frozen(graph, fixed, arguments),
            tuple(arguments[index].detach() for index in free),
            strict=False,
        )
    _refuse_writes(program)
    results, structure = _pytree.tree_flatten(program.graph_module.graph.output_node().args[0])
    mod, params = relay.frontend.from_pytorch(program)
    config = {"baton.precision": options.precision}
    with PassContext(options.opt_level, disabled_pass=list(options.disabled_pass), config=config):
        library = relay.build(mod, target=options.target, params=params)
    session = library.session(num_threads=options.num_threads or torch.get_num_threads())
    inputs = [info.name for info in session.inputs]
    outputs = [info.name for info in session.outputs]
    dtypes = [
        value.meta["val"].dtype if isinstance(value, torch.fx.Node) else None for value in results
    ]

    def run(given: Sequence[Any]) -> Any:
        values = session.run(
            {name: _array(given[index]) for name, index in zip(inputs, free, strict=True)}
        )
        arrays = iter(values[name] for name in outputs)
        leaves = [
            constant if dtype is None else _tensor(next(arrays), dtype)
            for constant, dtype in zip(results, dtypes)
        ]
        return _pytree.tree_unflatten(leaves, structure)

    return run


def _refuse_writes(program: torch.export.ExportedProgram) -> None:
    """Raise for a program that changes its arguments or buffers."""
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
    """Arguments that are tensors only because Dynamo hands Python's numbers over as such."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [
        index
        for index, node in enumerate(placeholders)
        if node.users and all(user.target == "item" for user in node.users)
    ]


def _with_numbers(graph: torch.fx.GraphModule, arguments: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph with the values of its numbers in place of what reads them from tensors."""
    changed = copy.deepcopy(graph)
    placeholders = [node for node in changed.graph.nodes if node.op == "placeholder"]
    for index in _numbers(changed):
        for user in list(placeholders[index].users):
            user.replace_all_uses_with(arguments[index])
            changed.graph.erase_node(user)
    changed.recompile()
    return changed


def _is_weight(value: Any) -> bool:
    """Whether an argument is a module's parameter or buffer, which Dynamo hands over like any."""
    return isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def _stamp(tensor: torch.Tensor) -> tuple[int, int]:
    """Changes when the tensor's values may have."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values, in place where they lie in the order of their axes."""
    plain = tensor.detach()
    if plain.dtype is torch.bfloat16:
        import ml_dtypes

        bits: np.ndarray = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    return plain.resolve_conj().resolve_neg().numpy()


def _tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array).to(dtype)
