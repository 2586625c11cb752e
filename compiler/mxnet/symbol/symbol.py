"""`Symbol`: a graph of MXNet operators, loaded, inspected, cut and saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ExportError, FrontendError, InputError
from compiler.mxnet_format.attributes import DTYPES, STORAGE_TYPES, spell
from compiler.mxnet_format.graph import VARIABLE, Entry, Graph, Node
from compiler.mxnet_format.json_format import read_json, write_json
from compiler.mxnet_format.operators import auxiliary_nodes, output_name, outputs_of, sort_arguments
from compiler.mxnet_format.params import load_params, split_prefixes
from compiler.support.atomic_file import replacing
from compiler.support.regular_files import os_errors_as, read_regular

from .compose import apply_operator, known_operator, merge_graphs, replace_variables

if TYPE_CHECKING:
    from .executor import Executor, HostArray

Shape = tuple[int, ...]


class Symbol:
    """An MXNet symbol: outputs of a graph of operators.

    Parameters
    ----------
    graph : Graph
        Nodes and outputs; the nodes that the outputs need are copied.
    """

    def __init__(self, graph: Graph):
        self._graph = graph.ordered()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Symbol:
        """Read a symbol file.

        Raises
        ------
        FrontendError
            The file can't be read or is not a symbol.
        """
        where = f"the symbol file {os.fspath(path)!r}"
        with os_errors_as(FrontendError, f"{where} can't be read"):
            text = read_regular(path)
        return cls(read_json(text, where))

    @classmethod
    def loads(cls, text: str | bytes) -> Symbol:
        """Read symbol JSON; raises FrontendError if it is none."""
        return cls(read_json(text))

    def tojson(self) -> str:
        """The symbol as JSON, subgraphs included."""
        return write_json(self._graph)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the symbol file; raises ExportError if it can't be written."""
        with (
            os_errors_as(ExportError, f"the symbol file {os.fspath(path)!r} can't be written"),
            replacing(path) as file,
        ):
            file.write(self.tojson().encode())

    def __neg__(self) -> Symbol:
        return Symbol(apply_operator("_mul_scalar", [self.graph], {"scalar": "-1.0"}, ""))

    def __abs__(self) -> Symbol:
        return operator("abs")(self)

    def astype(self, dtype: Any) -> Symbol:
        """The symbol cast to another dtype."""
        return operator("Cast")(self, dtype=str(np.dtype(dtype)))

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Raise TypeError: a symbol has no value."""
        raise TypeError("a Symbol has no truth value; compare names, or use `is`")

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Symbol:
        """The symbol with variables replaced by symbols of one output.

        Parameters
        ----------
        *args
            In the order of `list_arguments()`.
        name : str, optional
            Without effect: nodes keep their names.
        **kwargs
            By the names of variables.

        Raises
        ------
        FrontendError
            There is no such variable, one is given twice, or a group stands in its place.
        """
        names = self.list_arguments()
        if len(args) > len(names):
            raise FrontendError(f"{len(args)} symbols are given for the arguments {names}")
        given = dict(zip(names, args))
        for key, value in kwargs.items():
            if key in given or key not in self.list_inputs():
                why = "is given twice" if key in given else "is no variable of the symbol"
                raise FrontendError(f"{key!r} {why}; variables: {self.list_inputs()}")
            given[key] = value
        for key, value in given.items():
            if not isinstance(value, Symbol) or len(value) != 1:
                raise FrontendError(f"{key!r} is replaced by a symbol of one output, not {value!r}")
        return Symbol(replace_variables(self.graph, {k: v.graph for k, v in given.items()}))

    def __getattr__(self, name: str) -> Any:
        """An operator on this symbol as a method, e.g. `symbol.sum(axis=1)`."""
        if name.startswith("_"):
            raise AttributeError(f"a Symbol has no attribute {name!r}")
        return partial(operator(name), self)

    def as_np_ndarray(self) -> Symbol:
        """Itself: there is one class of symbols."""
        return self

    as_nd_ndarray = as_np_ndarray

    @property
    def graph(self) -> Graph:
        """The nodes in depth-first post-order from the outputs; not to be changed."""
        return self._graph

    @property
    def name(self) -> str | None:
        """Name of the node of a symbol with one output; None for a group."""
        heads = self._graph.heads
        return self._graph.nodes[heads[0].node].name if len(heads) == 1 else None

    def __len__(self) -> int:
        """Number of outputs."""
        return len(self._graph.heads)

    def __iter__(self) -> Iterator[Symbol]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<Symbol {self.name or 'group [' + ', '.join(self.list_outputs()) + ']'}>"

    def __getitem__(self, index: int | str) -> Symbol:
        """One output, by its position or its name.

        Raises
        ------
        IndexError, KeyError
            There is no such output, or several have the name.
        """
        if isinstance(index, str):
            names = self.list_outputs()
            found = [i for i, name in enumerate(names) if name == index]
            if len(found) != 1:
                count = "several outputs" if found else "no output"
                raise KeyError(f"the symbol has {count} named {index!r}; outputs: {names[:20]}")
            index = found[0]
        if not -len(self) <= index < len(self):
            raise IndexError(f"output {index} of a symbol with {len(self)} outputs")
        graph = self._graph
        return Symbol(Graph(graph.nodes, [graph.heads[index]], dict(graph.attrs)))

    def get_internals(self) -> Symbol:
        """A symbol whose outputs are the visible outputs of every node."""
        graph = self._graph
        heads = [
            Entry(i, k)
            for i, node in enumerate(graph.nodes)
            for k in range(outputs_of(node).visible)
        ]
        return Symbol(Graph(graph.nodes, heads, dict(graph.attrs)))

    def get_children(self) -> Symbol | None:
        """Group the operands of the outputs' nodes; None if all outputs are variables."""
        graph = self._graph
        nodes = dict.fromkeys(head.node for head in graph.heads)
        heads = [entry for index in nodes for entry in graph.nodes[index].inputs]
        return Symbol(Graph(graph.nodes, heads, dict(graph.attrs))) if heads else None

    def debug_str(self) -> str:
        """The outputs, then each node with its inputs and attributes, for people."""
        nodes = self._graph.nodes
        lines = ["Symbol Outputs:"]
        lines += [
            f"\toutput[{i}]={nodes[head.node].name}({head.output})"
            for i, head in enumerate(self._graph.heads)
        ]
        for node in nodes:
            if node.is_variable:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["-" * 20, f"Op:{node.op}, Name={node.name}"]
            if node.inputs:
                lines.append("Inputs:")
            for i, entry in enumerate(node.inputs):
                lines.append(f"\targ[{i}]={nodes[entry.node].name}({entry.output})")
            if node.attrs:
                lines.append("Attrs:")
            lines += [f"\t{key}={value}" for key, value in sorted(node.attrs.items())]
        return "\n".join(lines)

    def list_inputs(self) -> list[str]:
        """Names of all variables, in depth-first order."""
        return [node.name for node in self._graph.variables()]

    def list_arguments(self) -> list[str]:
        """Names of the variables that no operator changes."""
        return self._variables(auxiliary=False)

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that operators change in training: moving statistics."""
        return self._variables(auxiliary=True)

    def _variables(self, auxiliary: bool) -> list[str]:
        states = auxiliary_nodes(self._graph)
        return [
            node.name
            for i, node in enumerate(self._graph.nodes)
            if node.is_variable and (i in states) is auxiliary
        ]

    def list_outputs(self) -> list[str]:
        """Names of the outputs: `<node>_output`, or a variable's own name."""
        return [
            output_name(self._graph.nodes[head.node], head.output) for head in self._graph.heads
        ]

    def attr(self, key: str) -> str | None:
        """Attribute `key` of the node of a symbol with one output; None if it has none."""
        return self.list_attr().get(key)

    def list_attr(self) -> dict[str, str]:
        """Attributes of the node of a symbol with one output.

        Raises
        ------
        FrontendError
            The symbol has several outputs.
        """
        heads = self._graph.heads
        if len(heads) != 1:
            raise FrontendError("a group of outputs has no attributes; take one output of it")
        return dict(self._graph.nodes[heads[0].node].attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Node name to attributes, for the nodes that have any."""
        return {node.name: dict(node.attrs) for node in self._graph.nodes if node.attrs}

    def infer_shape(
        self, *ordered: Shape | None, **shapes: Shape
    ) -> tuple[list[Shape], list[Shape], list[Shape]]:
        """Shapes of all arguments, outputs and auxiliary states.

        Parameters
        ----------
        *ordered
            Shapes in the order of `list_arguments()`, None for an unknown one.
        **shapes
            Variable name to shape; those of weights follow from the data's.

        Raises
        ------
        FrontendError
            A name is unknown, or shapes contradict each other.
        UnknownShapeError
            A shape does not follow from what is given.
        UnsupportedOperatorError
            The importer does not know an operator.
        """
        from compiler.relay.frontend.mxnet import infer_shapes

        shapes |= {n: s for n, s in zip(self.list_arguments(), ordered) if s is not None}
        variables, outputs = infer_shapes(self, shapes)
        return (
            [variables[name] for name in self.list_arguments()],
            outputs,
            [variables[name] for name in self.list_auxiliary_states()],
        )

    def infer_shape_partial(
        self, *ordered: Shape | None, **shapes: Shape
    ) -> tuple[list[Shape | None], list[Shape | None], list[Shape | None]]:
        """`infer_shape` with None for shapes that do not follow from what is given."""
        shapes |= {n: s for n, s in zip(self.list_arguments(), ordered) if s is not None}
        return self._inferred(0, shapes, "float32")

    def infer_type(self, *ordered: Any, **dtypes: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Dtypes of all arguments, outputs and auxiliary states, as numpy's.

        An output is None where its dtype depends on shapes that the variables do not declare.

        Parameters
        ----------
        *ordered
            Dtypes in the order of `list_arguments()`; float32 where None is given or nothing.
        **dtypes
            By the names of variables.
        """
        dtypes |= {n: d for n, d in zip(self.list_arguments(), ordered) if d is not None}
        kinds = dict.fromkeys(self.list_inputs(), "float32")
        kinds |= {name: str(np.dtype(dtype)) for name, dtype in dtypes.items()}
        _, outputs, _ = self._inferred(1, {}, kinds)
        return (
            [np.dtype(kinds[name]).type for name in self.list_arguments()],
            [dtype and np.dtype(dtype).type for dtype in outputs],
            [np.dtype(kinds[name]).type for name in self.list_auxiliary_states()],
        )

    def _inferred(
        self, which: int, shapes: Mapping[str, Shape], dtype: str | Mapping[str, str]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Shapes (0) or dtypes (1) of arguments, outputs and auxiliary states; None if unknown."""
        from compiler.relay.frontend.mxnet import infer_types

        types = infer_types(self, shapes, dtype)
        variables = {
            node.name: found[0][which]
            for node, found in zip(self._graph.nodes, types)
            if node.is_variable
        }
        return (
            [variables[name] for name in self.list_arguments()],
            [types[head.node][head.output][which] for head in self._graph.heads],
            [variables[name] for name in self.list_auxiliary_states()],
        )

    def optimize_for(
        self,
        backend: str,
        args: Mapping[str, Any] | None = None,
        aux: Mapping[str, Any] | None = None,
        ctx: Any = None,
        *,
        shape_dict: Mapping[str, Shape] | None = None,
        type_dict: Mapping[str, Any] | None = None,
        stype_dict: Mapping[str, str] | None = None,
        skip_infer: bool = False,
        **options: Any,
    ) -> Symbol:
        """Let a partitioner select subgraphs, or a graph pass rewrite the graph.

        Parameters
        ----------
        backend : str
            A registered partitioner or graph pass.
        args, aux : mapping of str to array, or list of arrays, optional
            Values of arguments and auxiliary states; lists have one for each, in the order of
            `list_arguments()` and `list_auxiliary_states()`. Names that the symbol lacks are left
            aside; shapes and dtypes that follow from the rest are inferred. With any value
            given, every node gets `__ext_shape__` and `__ext_dtype__`. Dicts get the values of
            the variables that a graph pass adds.
        ctx : str or device, optional
            Accepted as in MXNet; the target of a subgraph is what its backend says.
        shape_dict, type_dict, stype_dict : mapping, optional
            Shapes, dtypes and storage types of variables without a value.
        skip_infer : bool
            Infer nothing.
        **options
            Handed to the callbacks, converted with `str`; those that every backend has are
            explained in `compiler.partition.options`.

        Returns
        -------
        Symbol
            With a node for every accepted subgraph, which holds it; or what the graph pass made.
            This symbol is not changed.

        Raises
        ------
        UnknownBackendError
            No partitioner or graph pass of that name is registered.
        PartitionCallbackError
            A callback or pass raised, returned an invalid result or timed out.
        PartitionError
            An argument is of the wrong kind, or missing where a graph pass adds values to it; a
            value contradicts the shape that its variable declares; aux is given without args; an
            option is not understood or rejected.
        FrontendError
            Shapes contradict each other.
        """
        from .optimize import optimize_for

        declared = shape_dict, type_dict, stype_dict
        return optimize_for(self, backend, args, aux, ctx, declared, skip_infer, options)

    def get_backend_symbol(self, backend: str) -> Symbol:
        """`optimize_for(backend)` under its name in MXNet 1.4 and 1.5; raises the same errors."""
        return self.optimize_for(backend)

    def bind(
        self,
        ctx: Any = None,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        args_grad: Any = None,
        grad_req: Any = "null",
        aux_states: Mapping[str, Any] | Sequence[Any] | None = None,
    ) -> Executor:
        """Compile the symbol for arrays by name, or in order; see `Executor`.

        `args_grad` and `grad_req` are accepted, without effect: there are no gradients. The
        environment variable MXNET_SUBGRAPH_BACKEND names a backend that partitions the symbol
        first, with the options' defaults.
        """
        from .executor import Executor
        from .optimize import for_environment

        values = {
            **_by_name("args", args, self.list_arguments()),
            **_by_name("aux_states", aux_states, self.list_auxiliary_states()),
        }
        return Executor(for_environment(self, values), values, ctx)

    def simple_bind(
        self, ctx: Any = None, grad_req: Any = "null", type_dict: Any = None, **shapes: Shape
    ) -> Executor:
        """Compile the symbol for arrays of zeros, whose shapes are given or follow.

        Parameters
        ----------
        ctx : str or device, optional
        grad_req : str
            Without effect.
        type_dict : mapping of str to dtype, optional
            Dtypes other than float32.
        **shapes
            As for `infer_shape`.
        """
        arguments, _, states = self.infer_shape(**shapes)
        names = [*self.list_arguments(), *self.list_auxiliary_states()]
        kinds = {**dict.fromkeys(names, "float32"), **(type_dict or {})}
        zeros = {n: np.zeros(s, kinds[n]) for n, s in zip(names, [*arguments, *states])}
        return self.bind(ctx, zeros)

    _bind, _simple_bind = bind, simple_bind

    def eval(self, ctx: Any = None, **arrays: Any) -> list[HostArray]:
        """The outputs for arrays by name, at inference; raises as `bind` does."""
        return self.bind(ctx, arrays).forward()


def _by_name(what: str, given: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Arrays that are given by name or in order, by name."""
    if isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise InputError(f"{what} is a list of {len(given)} arrays; it takes {list(names)}")
        return dict(zip(names, given))
    return given or {}


def group(symbols: Sequence[Symbol]) -> Symbol:
    """One symbol with the outputs of several; what they have in common stays in common."""
    return Symbol(merge_graphs([symbol.graph for symbol in symbols]))


Group = group


def operator(name: str) -> Callable[..., Symbol]:
    """The function `sym.<name>`.

    Raises
    ------
    AttributeError
        The importer knows no operator of that name.
    """
    op = known_operator(name)

    def call(*args: Any, attr: Mapping[str, str] | None = None, **kwargs: Any) -> Symbol:
        found = sort_arguments(op, args, kwargs, lambda value: isinstance(value, Symbol))
        inputs = [None if each is None else each.graph for each in found.inputs]
        attrs = {**found.attrs, **(attr or {})}
        return Symbol(apply_operator(op, inputs, attrs, found.name, name.lower()))

    call.__name__ = name
    call.__doc__ = f"The operator {op} on symbols."
    return call


class _Family:
    """Operators whose names start with `_contrib_`, `_linalg_`, ..."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        return operator(f"{self._prefix}{name}")


contrib, linalg = _Family("_contrib_"), _Family("_linalg_")


def binary(name: str, left: Any, right: Any) -> Any:
    """An operator on two symbols, or on a symbol and a number; else NotImplemented."""
    if isinstance(left, Symbol) and isinstance(right, Symbol):
        op = _OF_SYMBOLS.get(name, f"_{name}")
        return Symbol(apply_operator(op, [left.graph, right.graph], {}, "", f"_{name}"))
    symbol, number = (left, right) if isinstance(left, Symbol) else (right, left)
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not is_number or not isinstance(symbol, Symbol):
        return NotImplemented
    is_reversed = symbol is right and name in ("minus", "div", "mod", "power")
    op = f"_{'r' if is_reversed else ''}{name}_scalar"
    return Symbol(apply_operator(op, [symbol.graph], {"scalar": repr(float(number))}, ""))


def _method(name: str, reverse: bool = False) -> Callable[[Symbol, Any], Symbol]:
    """`binary` as a method; its operand comes first if `reverse`."""

    def method(self: Symbol, other: Any) -> Symbol:
        return binary(name, other, self) if reverse else binary(name, self, other)

    return method


_OF_SYMBOLS = {
    "plus": "elemwise_add",
    "minus": "elemwise_sub",
    "mul": "elemwise_mul",
    "div": "elemwise_div",
}

for _mark, _name in (("add", "plus"), ("sub", "minus"), ("mul", "mul"), ("truediv", "div"),
                     ("mod", "mod"), ("pow", "power")):  # fmt: skip
    setattr(Symbol, f"__{_mark}__", _method(_name))
    setattr(Symbol, f"__r{_mark}__", _method(_name, reverse=True))
for _mark, _name in (("lt", "lesser"), ("le", "lesser_equal"), ("gt", "greater"),
                     ("ge", "greater_equal"), ("eq", "equal"), ("ne", "not_equal")):  # fmt: skip
    setattr(Symbol, f"__{_mark}__", _method(_name))


def var(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Shape | None = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    **annotations: str,
) -> Symbol:
    """A variable as a symbol.

    Parameters
    ----------
    name : str
    attr : mapping of str to str, optional
        Annotations such as `__shape__`.
    shape, lr_mult, wd_mult, dtype, init, stype : optional
        Become the annotations `__shape__`, ...; extents of 0 or -1 are unknown.
    **annotations
        More of them, whose names start and end with "__".

    Raises
    ------
    FrontendError
        A name, dtype or storage type that makes no sense.
    """
    if not isinstance(name, str):
        raise FrontendError(f"the name of a variable must be a str, not {name!r:.60}")
    wrong = [key for key in annotations if not (key.startswith("__") and key.endswith("__"))]
    if wrong:
        raise FrontendError(f"var takes no {wrong[0]!r}; annotations are spelled '__{wrong[0]}__'")
    given = {"shape": shape, "lr_mult": lr_mult, "wd_mult": wd_mult, "init": init}
    found = {f"__{key}__": spell(value) for key, value in given.items() if value is not None}
    if dtype is not None:
        found["__dtype__"] = str(_code("dtype", str(np.dtype(dtype)), DTYPES))
    if stype is not None:
        found["__storage_type__"] = str(_code("stype", stype, STORAGE_TYPES))
    attrs = {**(attr or {}), **found, **annotations}
    return Symbol(Graph([Node(VARIABLE, name, attrs=attrs)], [Entry(0)]))


Variable = var


def _code(what: str, name: str, known: Sequence[str]) -> int:
    if name not in known:
        raise FrontendError(f"{what} is {name!r}; known are {', '.join(known)}")
    return known.index(name)


load, loads = Symbol.load, Symbol.loads
load_json = loads


def load_checkpoint(
    prefix: str, epoch: int
) -> tuple[Symbol, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Read `<prefix>-symbol.json` and `<prefix>-<epoch>.params`.

    Returns
    -------
    symbol, arguments by name, auxiliary states by name

    Raises
    ------
    FrontendError
        A file is missing or damaged, or the parameters have no names.
    """
    arrays = load_params(f"{prefix}-{epoch:04d}.params")
    if not isinstance(arrays, Mapping):
        raise FrontendError(f"{prefix}-{epoch:04d}.params has no names, so it is not a model file")
    return Symbol.load(f"{prefix}-symbol.json"), *split_prefixes(arrays)
