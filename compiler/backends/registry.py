"""Registry of back ends by name: partitioners, which select subgraphs, and graph passes.

A partitioner has one or more strategies that run in order. `Strategy` and `Selector` document the
callbacks. A graph pass rewrites the whole graph of a symbol.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.errors import PartitionError, UnknownBackendError

from .reasons import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from tvm import IRModule, relax

    from compiler.partition.selector import Selector

Options = dict[str, str]
CheckOptions = Callable[[Options], "str | None"]
Compile = Callable[["IRModule", "Mapping[str, np.ndarray]", Options], Any]
MakeSelector = Callable[[str, Options], "Selector"]
Mark = int | Unsupported
SupportedOps = Callable[[str, list[Any], Options], Sequence[Mark] | None]
Check = Callable[[dict[str, Any], list[dict[str, Any]], Options], bool | Unsupported]
FunctionMarks = Callable[["relax.Function", Options], Sequence[Mark]]
AcceptSubgraph = Callable[
    [str, int, Options, dict[str, str], "Mapping[str, np.ndarray]", "Mapping[str, np.ndarray]"],
    bool | Unsupported,
]
RunPass = Callable[
    [str, Options, "Mapping[str, np.ndarray]", "Mapping[str, np.ndarray]"],
    "tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]",
]


@dataclass(frozen=True)
class Strategy:
    """One pass of a partitioner over the graph.

    Attributes
    ----------
    name : str
        Name of the strategy, unique within its partitioner.
    supported_ops : (graph_json, ids, options) -> None or list of int, optional
        Selects nodes. `graph_json` is the whole graph (format: `compiler.backends.graph`); `ids`
        has one -2 per node. The callback sets `ids[i]` to -1 (may join any subgraph), to k >= 0
        (may join subgraph number k only) or leaves -2 (stays outside), or returns a list of the
        same length instead. `Unsupported(reason)` in place of -2 says why a node stays outside.
        Marks on variables and on subgraphs accepted earlier have no effect.
    check : (node, inputs, options) -> bool or Unsupported, optional
        Instead of `supported_ops`: whether one operator may join any subgraph. `node` is its entry
        in the graph's JSON, `inputs` has the entries of the nodes that feed it, in order. Not
        called for variables and for subgraphs accepted earlier.
    function_marks : (function, options) -> list of int or Unsupported, optional
        Instead of `supported_ops`, for modules alone: marks of the bindings of a function with
        Relay's operators, in their order.
    accept_subgraph : (graph_json, subgraph_id, options, attrs, args, aux) -> bool, optional
        Decides on one subgraph; called in ascending order of `subgraph_id`, which counts from 0
        in each strategy. `attrs` is an empty dict; strings put there become attributes of the
        accepted function, "target" says what to compile it for. `args` maps the name of every
        parameter and constant whose value is known to a read-only array that shares the memory
        of the value; the variable nodes of the subgraph give that name as "argName". `aux` is
        empty for modules. A rejection is `Unsupported(reason)`, or False, with or without a
        "reason" in `attrs`. Without this callback every subgraph is accepted.
    subgraph_op : str
        Operator name that later partitioners see on the accepted subgraph.
    selector : (graph_json, options) -> Selector, optional
        Instead of `supported_ops`: makes the object that grows subgraphs node by node. Its
        answers may be `Unsupported(reason)` too.
    review : optional
        Another name of `accept_subgraph`; both attributes are the same callback.
    library : str
        Identity of the C++ library that brings the strategy, if one does: only its operator
        `subgraph_op` runs the accepted subgraphs.
    compiles : bool
        Whether the partitioner's `compile`, if it has one, gets the accepted subgraphs.

    Notes
    -----
    A callback that raises, or that leaves or returns anything else, ends the partitioning with a
    `PartitionCallbackError`; the module stays as it was.
    """

    name: str
    supported_ops: SupportedOps | None = None
    accept_subgraph: AcceptSubgraph | None = None
    subgraph_op: str = "_custom_subgraph_op"
    selector: MakeSelector | None = None
    review: AcceptSubgraph | None = None
    library: str = ""
    compiles: bool = True
    check: Check | None = None
    function_marks: FunctionMarks | None = None

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), ("subgraph_op", self.subgraph_op)):
            if not isinstance(value, str) or not value:
                raise PartitionError(f"{what} of a strategy must be a non-empty str, not {value!r}")
        ways = "supported_ops", "selector", "check", "function_marks"
        if [getattr(self, way) for way in ways].count(None) != len(ways) - 1:
            raise PartitionError(f"strategy {self.name!r} needs exactly one of {', '.join(ways)}")
        if self.accept_subgraph is not None and self.review is not None:
            raise PartitionError(
                f"strategy {self.name!r}: review and accept_subgraph are two names of one callback"
            )
        object.__setattr__(self, "accept_subgraph", self.accept_subgraph or self.review)
        object.__setattr__(self, "review", self.accept_subgraph)
        for what in (*ways, "accept_subgraph"):
            if getattr(self, what) is not None and not callable(getattr(self, what)):
                raise PartitionError(f"strategy {self.name!r}: {what} is not callable")


@dataclass(frozen=True)
class Partitioner:
    """A registered partitioner.

    Attributes
    ----------
    name : str
    strategies : tuple of Strategy
        In the order they run.
    check_options, compile : callable, optional
        See `register`.
    device : str
        Device of the code that `compile` returns: "cpu" or "cuda"; see `register`.
    compiles_relax : bool
        Whether `compile` takes the subgraph with Relax operators instead of Relay's.
    options : tuple of str, optional
        Names of the options that the callbacks read, in addition to those that every partitioner
        has; None for any. Others are rejected.
    """

    name: str
    strategies: tuple[Strategy, ...]
    check_options: CheckOptions | None = None
    compile: Compile | None = None
    device: str = "cpu"
    compiles_relax: bool = False
    options: tuple[str, ...] | None = None

    def compiles(self, strategy: str) -> bool:
        """Whether `compile` gets the subgraphs of a strategy, by its name."""
        others = (each.name for each in self.strategies if not each.compiles)
        return self.compile is not None and strategy not in others


@dataclass(frozen=True)
class GraphPass:
    """A backend of `Symbol.optimize_for` that returns another graph.

    Attributes
    ----------
    name : str
    run : (graph_json, options, args, aux) -> (graph_json, new_args, new_aux)
        Gets the symbol as JSON, and known values by the names of variables; returns the new graph
        as JSON, and numpy arrays by name for variables that it adds.
    """

    name: str
    run: RunPass


COMPILE_OPTIONS = "baton.compile_options"
"""Attribute of an outlined function that its backend compiles itself: options, as JSON."""

_backends: dict[str, Partitioner | GraphPass] = {}
_lock = threading.Lock()


def register(
    name: str,
    strategies: Strategy | Sequence[Strategy] | None = None,
    *,
    replace: bool = False,
    check_options: CheckOptions | None = None,
    compile: Compile | None = None,
    device: str = "cpu",
    compiles_relax: bool = False,
    options: Sequence[str] | None = None,
) -> Any:
    """Register a partitioner.

    Without `strategies` it is a decorator of a `supported_ops` function, which becomes the one
    strategy of the partitioner, under the function's name::

        @register("exp_log")
        def select(graph_json, ids, options):
            for index, node in enumerate(json.loads(graph_json)["nodes"]):
                if node["op"] in ("exp", "log"):
                    ids[index] = -1

    Parameters
    ----------
    name : str
        Name to partition by.
    strategies : Strategy or sequence of Strategy, optional
        Run in this order, each on the result of the one before.
    replace : bool
        Replace a partitioner of that name instead of raising.
    check_options : (options) -> None or str, optional
        Called with a copy of the options before the first strategy runs. A text that it returns
        is the reason why it rejects them; nothing is partitioned then.
    compile : (subgraph, params, options) -> code, optional
        Compiles an accepted subgraph in place of the build driver. `subgraph` is a module with
        one function of Relay's operators, of which `compiler.relay.to_relax` makes plain Relax;
        `params` has the values of those of its parameters that are known, by
        name; `options` are those of the `partition` call. What it returns is called with the
        other inputs in order:

        * a Python callable of numpy arrays, which returns one array or a tuple of them; a
          library with one can't be exported;
        * a `compiler.runtime.foreign.ExternalCode`, bytes for a runtime known by name;
        * a TVM runtime module with a function of the subgraph function's name, which also gets
          the output tensors to write to.
    device : str
        "cuda" for code that works on the GPU's tensors. `compile` then gets the subgraph with its
        constants as trailing parameters, without values, and returns an `ExternalCode` of a
        runtime that `compiler.runtime.foreign.register_engine` made known.
    compiles_relax : bool
        `compile` takes the subgraph with Relax operators instead of Relay's.
    options : sequence of str, optional
        Names of the options that the callbacks read. `partition` then rejects all others but
        those of `compiler.partition.options`; by default it accepts any.

    Raises
    ------
    PartitionError
        The name is taken or empty, there is no strategy, two strategies share a name, or the
        device is another.
    """
    if strategies is None:
        settings: dict[str, Any] = {"check_options": check_options, "compile": compile}
        settings |= {"device": device, "compiles_relax": compiles_relax, "options": options}

        def decorate(supported_ops: SupportedOps) -> SupportedOps:
            title = getattr(supported_ops, "__name__", name)
            register(name, [Strategy(title, supported_ops)], replace=replace, **settings)
            return supported_ops

        return decorate
    given = (strategies,) if isinstance(strategies, Strategy) else tuple(strategies)
    if not isinstance(name, str) or not name:
        raise PartitionError(f"name of a partitioner must be a non-empty str, not {name!r}")
    if not given:
        raise PartitionError(f"partitioner {name!r} has no strategy")
    for strategy in given:
        if not isinstance(strategy, Strategy):
            raise PartitionError(f"partitioner {name!r}: {strategy!r} is not a Strategy")
    if len({strategy.name for strategy in given}) != len(given):
        names = ", ".join(strategy.name for strategy in given)
        raise PartitionError(f"partitioner {name!r}: strategies share a name: {names}")
    for what, callback in (("check_options", check_options), ("compile", compile)):
        if callback is not None and not callable(callback):
            raise PartitionError(f"partitioner {name!r}: {what} is not callable")
    if device not in ("cpu", "cuda"):
        raise PartitionError(f"partitioner {name!r}: device is {device!r}, not 'cpu' or 'cuda'")
    known = None if options is None else tuple(options)
    _add(Partitioner(name, given, check_options, compile, device, compiles_relax, known), replace)
    return None


def register_pass(name: str, run: RunPass, *, replace: bool = False) -> None:
    """Register a graph pass; see `GraphPass`. Raises PartitionError: the name is taken."""
    _add(GraphPass(name, run), replace)


def _add(backend: Partitioner | GraphPass, replace: bool) -> None:
    kind = "partitioner" if isinstance(backend, Partitioner) else "graph pass"
    with _lock:
        if backend.name in _backends and not replace:
            raise PartitionError(
                f"{kind} {backend.name!r} is already registered; unregister it first, "
                "or pass replace=True"
            )
        _backends[backend.name] = backend


def unregister(name: str) -> None:
    """Remove a partitioner or a graph pass.

    Raises
    ------
    UnknownBackendError
        None of that name is registered.
    """
    with _lock:
        if name not in _backends:
            raise _unknown_backend_error(name)
        del _backends[name]


def list_partitioners() -> list[str]:
    """Names of all registered partitioners, sorted."""
    return sorted(name for name, made in registered().items() if isinstance(made, Partitioner))


def registered() -> dict[str, Partitioner | GraphPass]:
    """All partitioners and graph passes by name, as of now."""
    with _lock:
        return dict(_backends)


def restore(backends: Mapping[str, Partitioner | GraphPass]) -> None:
    """Replace the registry with the result of an earlier `registered` call."""
    with _lock:
        _backends.clear()
        _backends.update(backends)


def get_partitioner(name: str) -> Partitioner:
    """Look up a partitioner by name; raise UnknownBackendError if none is registered."""
    found = registered().get(name)
    if isinstance(found, GraphPass):
        raise UnknownBackendError(
            f"{name!r} is a graph pass, which rewrites symbols, and not a partitioner"
        )
    if found is None:
        raise _unknown_backend_error(name)
    return found


def graph_pass(name: str) -> GraphPass | None:
    """The graph pass that is registered under a name, or None."""
    found = registered().get(name)
    return found if isinstance(found, GraphPass) else None


def compiled_attrs(backend: str, strategy: str, options: Mapping[str, str]) -> dict[str, str]:
    """Attribute of subgraphs that the backend compiles itself: the options it will get."""
    if backend not in list_partitioners() or not get_partitioner(backend).compiles(strategy):
        return {}
    return {COMPILE_OPTIONS: json.dumps(dict(options))}


def subgraph_name(backend: str, strategy: str, number: int) -> str:
    """Wanted name of the function of an accepted subgraph."""
    return re.sub(r"\W", "_", f"subgraph_{backend}_{strategy}_{number}")


def _unknown_backend_error(name: object) -> UnknownBackendError:
    known = ", ".join(sorted(_backends)) or "none"
    return UnknownBackendError(f"no partitioner named {name!r} is registered; registered: {known}")
