"""Control flow: loops whose length is known are unrolled."""

from __future__ import annotations

from tvm import relax

from compiler.errors import FrontendError

from ..mxnet_node import SymbolNode

op = relax.op


def foreach(node: SymbolNode) -> list[relax.Expr]:
    """The body on every slice along the first axis; states go from one slice to the next."""
    if len(node.node.subgraphs) != 1 or not node.has("in_data_locs"):
        raise node.unsupported(
            "the file does not say which inputs are data and which are states; MXNet 2.0 does "
            "not write that"
        )
    body = node.node.subgraphs[0]
    places = [node.integers(f"{kind}_locs", ()) for kind in ("in_data", "in_state", "remain")]
    flat = [place for kind in places for place in kind]
    if sorted(flat) != list(range(node.count)):
        raise FrontendError(f"{node.describe()}: {flat} do not name its {node.count} inputs")
    values = node.all()
    data = values[: len(places[0])]
    states = values[len(places[0]) : len(places[0]) + len(places[1])]
    rest = values[len(places[0]) + len(places[1]) :]
    outputs = node.integer("num_out_data", len(body.heads) - len(states))
    rows: list[list[relax.Expr]] = []
    for step in range(node.shape_of(data[0])[0]):
        slices = [_row(node, value, step) for value in data]
        arguments = [value for _, value in sorted(zip(flat, [*slices, *states, *rest]),
                                                  key=lambda pair: pair[0])]  # fmt: skip
        results = node.importer.convert_body(body, arguments)
        rows.append([node.emit(op.expand_dims(value, 0)) for value in results[:outputs]])
        states = results[outputs:]
    stacked = [op.concat(list(column), 0) for column in zip(*rows)]
    return [*stacked, *states]


def _row(node: SymbolNode, value: relax.Expr, step: int) -> relax.Expr:
    part = node.emit(op.strided_slice(value, [0], [step], [step + 1]))
    return node.emit(op.squeeze(part, [0]))


CONVERTERS = {"_foreach": foreach, "_npx_foreach": foreach}
