"""Inputs, auxiliary states, parameters and outputs of MXNet's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from compiler.runtime.library_operators import find

from .attributes import parse_bool, parse_int, parse_int_tuple, spell
from .data_dependent import UNIQUE_FLAGS
from .graph import Graph, Node

_ALIASES = {
    "BatchNorm_v1": "BatchNorm",
    "_contrib_SyncBatchNorm": "BatchNorm",
    "_contrib_quantized_batch_norm": "BatchNorm",
    "Convolution_v1": "Convolution",
    "Softmax": "SoftmaxOutput",
    "split": "SliceChannel",
}


_FUNCTIONS = {
    "dropout": "Dropout",
    "flatten": "Flatten",
    "identity": "_copy",
    "leaky_relu": "LeakyReLU",
}


def operator_of(function: str) -> str:
    """Return the operator that a function of `mx.nd` or `mx.sym` calls."""
    return _FUNCTIONS.get(function, function)


class Outputs(NamedTuple):
    """Outputs of an operator: all, the visible ones, and their names if they have any."""

    total: int
    visible: int
    names: tuple[str, ...] = ()


_ONE = Outputs(1, 1)

_HIDDEN = {
    "BatchNorm": ("output", "mean", "var"),
    "BilinearSampler": ("output", "tmp"),
    "Correlation": ("output", "tmp1", "tmp2"),
    "Dropout": ("output", "mask"),
    "GridGenerator": ("output", "grid_dst"),
    "GroupNorm": ("output", "mean", "std"),
    "InstanceNorm": ("output", "mean", "var"),
    "L2Normalization": ("output", "norm"),
    "LayerNorm": ("output", "mean", "std"),
    "LRN": ("output", "tmp_norm"),
    "ROIPooling": ("output", "maxidx"),
}
"""Operators whose outputs after the first are hidden unless an attribute asks for them."""

_BIASED = ("data", "weight", "bias")
_INPUT_NAMES = {
    "BatchNorm": ("data", "gamma", "beta", "moving_mean", "moving_var"),
    **dict.fromkeys(("Convolution", "Deconvolution", "FullyConnected"), _BIASED),
    "Embedding": ("data", "weight"),
    **dict.fromkeys(("GroupNorm", "InstanceNorm", "LayerNorm"), ("data", "gamma", "beta")),
    "LeakyReLU": ("data", "gamma"),
    **{f"{kind}RegressionOutput": ("data", "label") for kind in ("Linear", "Logistic", "MAE")},
    "RNN": ("data", "parameters", "state", "state_cell"),
    "SoftmaxOutput": ("data", "label"),
}


def canonical(op: str) -> str:
    """The name under which this module knows an operator."""
    return _ALIASES.get(op, op)


def input_names(node: Node) -> tuple[str, ...]:
    """Names of the inputs that the operator takes with the node's attributes; () if unknown."""
    op = canonical(node.op)
    names = _INPUT_NAMES.get(op, ())
    if names == _BIASED and _flag(node, "no_bias", op == "Deconvolution"):
        return names[:-1]
    if op == "LeakyReLU" and node.attrs.get("act_type", "leaky") != "prelu":
        return names[:1]
    if op == "RNN" and node.attrs.get("mode") != "lstm":
        return names[:-1]
    return names


_PARAMETERS = {
    "Cast": ("dtype",),
    "Reshape": ("shape",),
    "SliceChannel": ("num_outputs", "axis", "squeeze_axis"),
    "SwapAxis": ("dim1", "dim2"),
    "broadcast_to": ("shape",),
    "clip": ("a_min", "a_max"),
    "expand_dims": ("axis",),
    "one_hot": ("depth", "on_value", "off_value", "dtype"),
    "repeat": ("repeats", "axis"),
    "slice": ("begin", "end", "step"),
    "slice_axis": ("axis", "begin", "end"),
    "tile": ("reps",),
    "transpose": ("axes",),
    **dict.fromkeys(("max", "mean", "min", "norm", "prod", "sum"), ("axis", "keepdims")),
    **dict.fromkeys(("log_softmax", "reverse", "softmax", "squeeze"), ("axis",)),
}
"""Parameters of operators that callers pass by position, after the inputs."""


def _parameter_names(op: str) -> tuple[str, ...]:
    functions = {"cast": "Cast", "flip": "reverse", "reshape": "Reshape", "swapaxes": "SwapAxis"}
    return _PARAMETERS.get(canonical(functions.get(op, op)), ())


class Call(NamedTuple):
    """The arguments of a function of `mx.nd` or `mx.sym`, sorted."""

    inputs: list[Any]  # in the operator's order; None if not given
    attrs: dict[str, str]  # spelled as in a symbol file
    name: str  # "" if not given


def sort_arguments(
    op: str, args: Sequence[Any], kwargs: Mapping[str, Any], is_input: Callable[[Any], bool]
) -> Call:
    """Separate inputs from parameters: inputs come first, also in lists, or by name.

    Parameters come by name, or after the inputs in the operator's order. None in place of an input
    leaves it out. Raises TypeError for an argument that is neither.
    """
    inputs: list[Any] = []
    named = canonical(op)
    behind = iter(_parameter_names(op))
    for arg in args:
        if is_input(arg) or (arg is None and len(inputs) < len(_INPUT_NAMES.get(named, ()))):
            inputs.append(arg)
        elif isinstance(arg, (list, tuple)) and arg and all(map(is_input, arg)):
            inputs += arg
        elif (name := next(behind, None)) is not None:
            kwargs = {**kwargs, name: arg}
        else:
            raise TypeError(f"{op}: {arg!r:.60} is not an input; give parameters by their names")
    given = {key: value for key, value in kwargs.items() if is_input(value)}
    attrs = {
        key: spell(value)
        for key, value in kwargs.items()
        if key not in given and key not in ("name", "out") and value is not None
    }
    names = input_names(Node(op, op, attrs=attrs))
    while len(inputs) > len(names) and inputs[-1] is None:
        inputs.pop()
    inputs = [
        given.pop(name, None) if each is None else each
        for each, name in zip(inputs, [*names, *[""] * len(inputs)])
    ]
    inputs += [given.pop(name, None) for name in names[len(inputs) :]]
    inputs += given.values()
    return Call(inputs, attrs, kwargs.get("name") or "")


_BATCH_NORMS = frozenset(["BatchNorm", *(k for k, op in _ALIASES.items() if op == "BatchNorm")])


def mutable_inputs(node: Node) -> set[int]:
    """Positions of the inputs that are auxiliary states."""
    if node.op in _BATCH_NORMS:
        return {3, 4}
    if node.subgraphs and is_call(node):
        body = node.subgraphs[0]
        inner = auxiliary_nodes(body)
        variables = [index for index, entry in enumerate(body.nodes) if entry.is_variable]
        return {position for position, index in enumerate(variables) if index in inner}
    return set()


def auxiliary_nodes(graph: Graph) -> set[int]:
    """Indices of the variables that some operator of the graph lists as mutable."""
    found = set()
    for node in graph.nodes:
        if node.is_variable:
            continue
        mutable = mutable_inputs(node)
        for position, entry in enumerate(node.inputs if mutable else ()):
            if position in mutable and graph.nodes[entry.node].is_variable:
                found.add(entry.node)
    return found


_CONTROL_FLOW = frozenset(
    [*("_foreach", "_while_loop", "_cond"), *("_npx_foreach", "_npx_while_loop", "_npx_cond")]
)


def is_call(node: Node) -> bool:
    """Whether the node calls its one subgraph, as partitioning creates it."""
    return len(node.subgraphs) == 1 and node.op not in _CONTROL_FLOW


def outputs_of(node: Node) -> Outputs:
    """Outputs of a node; of an unknown operator as many as the file states, else one."""
    library = find(node.op)
    if library is not None and not node.subgraphs:
        _, count = library.counts(node.attrs)
        return Outputs(count, count)
    if node.op not in _SEVERAL and not node.subgraphs and node.num_outputs is None:
        return _ONE  # of a large graph nearly every node
    op = canonical(node.op)
    if node.is_variable:
        return _ONE
    if node.subgraphs and is_call(node):
        count = len(node.subgraphs[0].heads)
        return Outputs(count, count)
    if op in _HIDDEN:
        names = _HIDDEN[op]
        shown = len(names) if _flag(node, "output_mean_var", False) else 1
        return Outputs(len(names), shown, names)
    counter = _COUNTED.get(op)
    counted = None if counter is None else _count(counter, node)
    if counted is not None:
        return Outputs(counted, counted)
    stated = node.num_outputs or 1
    if stated == 1:
        return _ONE
    return Outputs(stated, 1 if op in _ONE_VISIBLE else stated)


_ONE_VISIBLE = frozenset(["LeakyReLU", "Pooling", "_contrib_box_nms"])
"""Operators that may have a hidden second output, depending on how MXNet was built."""


def _split_v2(node: Node) -> int:
    sections = parse_int(node.attrs.get("sections", "0"))
    if sections > 0:
        return sections
    indices = parse_int_tuple(node.attrs.get("indices", "()"))
    return len(indices) + (0 if indices[:1] == (0,) else 1)


def _rnn(node: Node) -> int:
    if not _flag(node, "state_outputs", False):
        return 1
    return 3 if node.attrs.get("mode") == "lstm" else 2


_STATED = (
    *("SliceChannel", "amp_multicast", "_cond", "_foreach", "_npx_cond", "_npx_foreach"),
    *("_npx_while_loop", "_while_loop"),
)
_COUNTED: dict[str, Callable[[Node], int]] = {
    **dict.fromkeys(_STATED, lambda node: parse_int(node.attrs["num_outputs"])),
    "_split_v2": _split_v2,
    "topk": lambda node: 2 if node.attrs.get("ret_typ") == "both" else 1,
    "RNN": _rnn,
    "_npi_unique": lambda node: 1 + sum(_flag(node, key, False) for key in UNIQUE_FLAGS),
}

_SEVERAL = frozenset([*_HIDDEN, *_COUNTED, *_ALIASES])
"""Operators that may have several outputs without the node's saying so."""

MOST_OUTPUTS = 65536
"""More outputs of one node than this are taken for damage."""


def _count(counter: Callable[[Node], int], node: Node) -> int | None:
    """Number of outputs that the attributes ask for; None where they are missing or wrong."""
    try:
        count = counter(node)
    except (KeyError, ValueError):
        return None
    return count if 0 < count <= MOST_OUTPUTS else None


def _flag(node: Node, key: str, default: bool) -> bool:
    text = node.attrs.get(key)
    if text is None:
        return default
    try:
        return parse_bool(text)
    except ValueError:
        return default


def output_name(node: Node, index: int) -> str:
    """The name that MXNet gives to output `index` of a node."""
    if node.is_variable:
        return node.name
    outputs = outputs_of(node)
    if index < len(outputs.names):
        suffix = outputs.names[index]
    elif len(node.subgraphs) == 1 and node.op == "_CachedOp":
        body = node.subgraphs[0]
        suffix = output_name(body.nodes[body.heads[index].node], body.heads[index].output)
    else:
        suffix = "output" if outputs.visible == 1 else f"output{index}"
    return f"{node.name}_{suffix}" if node.name else suffix
