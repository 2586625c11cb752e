"""If, Loop and Scan around small bodies, and sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from ..draft import Draft
from ..evaluate import type_of

BODY_OPS = ("Add", "Mul", "Sub", "Max", "Min")


def _info(name: str, like: np.ndarray) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(like.dtype)
    return helper.make_tensor_value_info(name, element, list(like.shape))


def _untyped(name: str, like: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, type_of(like))


def _body_node(d: Draft, operands: Sequence[str], result: str) -> list[onnx.NodeProto]:
    """One or two nodes on float tensors of one shape."""
    op = d.one_of(BODY_OPS)
    if d.chance(0.5):
        return [helper.make_node(op, [operands[0], operands[-1]], [result])]
    inner = f"{result}_inner"
    activation = d.one_of(["Tanh", "Relu", "Neg", "Abs", "Sigmoid"])
    return [
        helper.make_node(op, [operands[0], operands[-1]], [inner]),
        helper.make_node(activation, [inner], [result]),
    ]


def _prefix(d: Draft) -> str:
    """Names of inner graphs are unique in the whole model."""
    return f"g{sum(len(node.output) for node in d.nodes)}_"


FLOAT = ("float32", "float64")


def branch(d: Draft, op: str) -> None:
    x = d.tensor(FLOAT)
    y = d.like(x, d.shape_of(x))
    condition = d.new("bool", (), constant=0.15)
    p = _prefix(d)
    like = d.values[x]
    graphs = []
    for name, operands in (("then", [x, y]), ("else", [y])):
        nodes = _body_node(d, operands, f"{p}{name}")
        graphs.append(helper.make_graph(nodes, p + name, [], [_info(f"{p}{name}", like)]))
    d.add(op, [condition], then_branch=graphs[0], else_branch=graphs[1])


def loop(d: Draft, op: str) -> None:
    x = d.tensor(FLOAT)
    like = d.values[x]
    outer = d.like(x, d.shape_of(x)) if d.chance(0.5) else x
    p = _prefix(d)
    rounds = d.fixed(d.integer(1, 4), constant=0.9)
    keep = d.fixed(True, "bool", 0.9) if d.chance(0.7) else ""
    scans = d.chance(0.5)
    body = helper.make_graph(
        [
            *_body_node(d, [f"{p}state", outer], f"{p}next"),
            helper.make_node("Identity", [f"{p}go"], [f"{p}go_on"]),
            *([helper.make_node("Identity", [f"{p}next"], [f"{p}each"])] if scans else []),
        ],
        f"{p}body",
        [
            _info(f"{p}i", np.zeros((), "int64")),
            _info(f"{p}go", np.zeros((), "bool")),
            _info(f"{p}state", like),
        ],
        [
            _info(f"{p}go_on", np.zeros((), "bool")),
            _info(f"{p}next", like),
            *([_info(f"{p}each", like)] if scans else []),
        ],
    )
    d.add(op, [rounds, keep, x], 2 if scans else 1, body=body)


def scan(d: Draft, op: str) -> None:
    steps = d.integer(1, 4)
    inner = d.shape(0, 2)
    dtype = d.dtype(FLOAT)
    state, sequence = d.new(dtype, inner), d.new(dtype, (steps, *inner), constant=0)
    p = _prefix(d)
    like = d.values[state]
    body = helper.make_graph(
        [
            *_body_node(d, [f"{p}state", f"{p}item"], f"{p}next"),
            helper.make_node("Identity", [f"{p}next"], [f"{p}each"]),
        ],
        f"{p}body",
        [_untyped(f"{p}state", like), _untyped(f"{p}item", like)],
        [_untyped(f"{p}next", like), _untyped(f"{p}each", like)],
    )
    direction = d.one_of([None, [0], [1]])
    d.add(
        op,
        [state, sequence],
        2,
        body=body,
        num_scan_inputs=1,
        scan_input_directions=direction,
        scan_output_directions=d.one_of([None, [0], [1]]),
        scan_output_axes=d.one_of([None, [0], [len(inner)]]),
    )


# ---------------------------------------------------------------- sequences


def _sequence(d: Draft) -> tuple[str, int]:
    """A sequence of tensors, and its length."""
    x = d.tensor()
    others = [d.like(x, d.shape_of(x)) for _ in range(d.integer(0, 2))]
    return d.add("SequenceConstruct", [x, *others])[0], 1 + len(others)


def _at(d: Draft, sequence: str, length: int) -> None:
    d.add("SequenceAt", [sequence, d.fixed(d.integer(-length, length - 1), constant=1.0)])


def sequence_at(d: Draft, op: str) -> None:
    _at(d, *_sequence(d))


def sequence_concat(d: Draft, op: str) -> None:
    sequence, _ = _sequence(d)
    rank = d.values[sequence][0].ndim
    stack = d.one_of([None, 0, 1]) if rank else 1
    axis = d.integer(0, rank if stack else rank - 1)
    d.add(op, [sequence], axis=axis, new_axis=stack)


def sequence_length(d: Draft, op: str) -> None:
    d.add(op, [_sequence(d)[0]])


def sequence_insert(d: Draft, op: str) -> None:
    sequence, length = _sequence(d)
    like = d.values[sequence][0]
    item = d.new(str(like.dtype), like.shape)
    position = [d.fixed(d.integer(-length, length), constant=1.0)] if d.chance(0.6) else []
    _at(d, d.add(op, [sequence, item, *position])[0], length + 1)


def sequence_empty(d: Draft, op: str) -> None:
    item = d.tensor()
    dtype = helper.np_dtype_to_tensor_dtype(d.values[item].dtype)
    sequence = d.add(op, [], dtype=dtype)[0]
    _at(d, d.add("SequenceInsert", [sequence, item])[0], 1)


def sequence_erase(d: Draft, op: str) -> None:
    sequence, length = _sequence(d)
    position = [d.fixed(d.integer(-length, length - 1), constant=1.0)] if d.chance(0.6) else []
    d.add("SequenceLength", d.add(op, [sequence, *position]))


def split_to_sequence(d: Draft, op: str) -> None:
    x = d.tensor(d.allowed(op), lambda s: len(s) > 0 and 0 not in s, lambda: (4, 3))
    axis = d.integer(0, len(d.shape_of(x)) - 1)
    keep = d.one_of([None, 0, 1])
    sizes = [d.fixed(d.integer(1, 3), constant=1.0)] if d.chance(0.5) else []
    _at(d, d.add(op, [x, *sizes], axis=axis, keepdims=keep)[0], 1)


def optional_has(d: Draft, op: str) -> None:
    d.add(op, d.add("Optional", [d.tensor()]))


def optional_get(d: Draft, op: str) -> None:
    d.add("OptionalGetElement", d.add("Optional", [d.tensor()]))


MAKERS: dict[str, Callable[[Draft, str], None]] = {
    "ConcatFromSequence": sequence_concat,
    "If": branch,
    "Loop": loop,
    "Optional": optional_get,
    "OptionalGetElement": optional_get,
    "OptionalHasElement": optional_has,
    "Scan": scan,
    "SequenceAt": sequence_at,
    "SequenceConstruct": sequence_at,
    "SequenceEmpty": sequence_empty,
    "SequenceErase": sequence_erase,
    "SequenceInsert": sequence_insert,
    "SequenceLength": sequence_length,
    "SplitToSequence": split_to_sequence,
}
