"""Tensor arrays: lists of tensors with the functions of TensorFlow's importer, as Relay text.

Each tensor of an array is wrapped in a data type. The type for a dtype has one constructor per
rank, `tensor2_float32`. The type for a dtype and shape has one for tensors of that shape.
`tensor_nil` is an element that has not been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .ty import is_any

RANKS = range(7)


def static_name(
    canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None
) -> str:
    """Name of a definition for tensors of a shape: `tensor_array_float32_2_any`."""
    extents = ["any" if each is None or is_any(each) else str(each) for each in shape]
    shown = "_".join(extents) or "scalar"
    if canonical == "tensor_t":
        return f"static_tensor_{dtype}_{shown}_t"
    if batch_dim == 1 and canonical not in ("tensor_constructor", "tensor_nil"):
        return f"{canonical}_{dtype}_batch1_{shown}"
    return f"{canonical}_{dtype}_{shown}"


def text_of_rank_type(dtype: str) -> str:
    """Data type of tensors of a dtype and any shape."""
    made = [f"  tensor{rank}_{dtype}({_tensor((None,) * rank, dtype)})," for rank in RANKS]
    return _document([f"type tensor_{dtype}_t {{", f"  tensor_nil_{dtype},", *made, "}"])


def text_of_ranks(dtype: str) -> str:
    """Functions for tensors of a dtype and any shape; the type must be defined already."""
    array = f"List[tensor_{dtype}_t]"
    tensor = f"tensor_{dtype}_t"
    kinds = [_tensor((None,) * rank, dtype) for rank in RANKS]
    take = [f"    tensor{rank}_{dtype}(%x) => tensor{rank}_{dtype}({_TAKE})," for rank in RANKS[1:]]
    grow = [
        f"    tensor{rank}_{dtype}(%x) => tensor{rank + 1}_{dtype}(expand_dims(%x, axis=0)),"
        for rank in RANKS[:-1]
    ]
    join = [
        f"    (tensor{rank}_{dtype}(%a), tensor{rank}_{dtype}(%b)) => "
        f"tensor{rank}_{dtype}(concatenate((%a, %b))),"
        for rank in RANKS[1:]
    ]
    lines = [
        *_matching(f"@tensor_take_{dtype}(%t: {tensor}, {_BOUNDS}) -> {tensor}", "%t", take),
        *_matching(f"@tensor_expand_dims_{dtype}(%t: {tensor}) -> {tensor}", "%t", grow),
        *_matching(
            f"@tensor_concatenate_{dtype}(%x: {tensor}, %y: {tensor}) -> {tensor}", "(%x, %y)", join
        ),
        *_array(dtype, array, tensor),
    ]
    for rank in RANKS[1:]:
        name = f"tensor_array_unstack_tensor{rank}_{dtype}"
        lines += _unstack(name, f"tensor{rank - 1}_{dtype}", kinds[rank], array)
    lines += _split(dtype, array, tensor)
    lines += _concat(dtype, array, tensor)
    lines += _stack(dtype, array, tensor, f"tensor_array_concat_{dtype}")
    return _document(lines)


def text_of_shape(dtype: str, shape: Sequence[Any], batch_dim: int | None = None) -> str:
    """Functions for tensors of a defined type; `shapes_beside`: others that they create."""
    taller, *others = shapes_beside(shape, batch_dim)
    suffix = static_name("", dtype, shape, batch_dim).removeprefix("_")
    own, tall = _Kind(dtype, shape), _Kind(dtype, taller)
    lines = [
        *_array(suffix, own.array, own.tensor, own.nil),
        *_matching(
            f"@tensor_expand_dims_{suffix}(%t: {own.tensor}) -> {tall.tensor}",
            "%t",
            [f"    {own.made}(%x) => {tall.made}(expand_dims(%x, axis=0)),"],
        ),
        *_matching(
            f"@tensor_get_data_{suffix}(%t: {own.tensor}) -> {own.type}",
            "%t",
            [f"    {own.made}(%x) => %x,"],
        ),
        *_join(f"tensor_array_stack_joined_{suffix}", tall, tall),
        *_stack(suffix, own.array, tall.tensor, f"tensor_array_stack_joined_{suffix}"),
    ]
    if not others:
        return _document(lines)
    long, low = (_Kind(dtype, each) for each in others)
    lines += _matching(
        f"@tensor_take_{suffix}(%t: {own.tensor}, {_BOUNDS}) -> {long.tensor}",
        "%t",
        [f"    {own.made}(%x) => {long.made}({_TAKE}),"],
    )
    lines += _matching(
        f"@tensor_concatenate_{suffix}(%x: {own.tensor}, %y: {own.tensor}) -> {long.tensor}",
        "(%x, %y)",
        [f"    ({own.made}(%a), {own.made}(%b)) => {long.made}(concatenate((%a, %b))),"],
    )
    lines += _unstack(f"tensor_array_unstack_{suffix}", low.made, own.type, low.array)
    lines += _split(suffix, long.array, own.tensor)
    lines += _join(f"tensor_array_concat_{suffix}", own, long)
    return _document(lines)


class _Kind:
    """Names of the data type and constructors for tensors of a shape."""

    def __init__(self, dtype: str, shape: Sequence[Any]) -> None:
        self.tensor = static_name("tensor_t", dtype, shape)
        self.array = f"List[{self.tensor}]"
        self.made = static_name("tensor_constructor", dtype, shape)
        self.nil = static_name("tensor_nil", dtype, shape)
        self.type = _tensor(shape, dtype)


def text_of_type(dtype: str, shape: Sequence[Any]) -> str:
    """Data type of tensors of a dtype and a shape."""
    own = _Kind(dtype, shape)
    return _document([f"type {own.tensor} {{ {own.nil}, {own.made}({own.type}), }}"])


def shapes_beside(shape: Sequence[Any], batch_dim: int | None = None) -> list[list[Any]]:
    """Shapes of the tensors that the functions for a shape create."""
    taller = [None if batch_dim != 1 else 1, *shape]
    return [taller, [None, *shape[1:]], list(shape[1:])] if shape else [taller]


_BOUNDS = "%lower: int32, %upper: int32"
_TAKE = 'take(%x, arange(%lower, %upper, 1, dtype="int32"), axis=0)'


def _tensor(shape: Sequence[Any], dtype: str) -> str:
    if not shape:
        return dtype
    extents = ["?" if each is None or is_any(each) else str(int(each)) for each in shape]
    return f"Tensor[({', '.join(extents)}), {dtype}]"


def _document(lines: Sequence[str]) -> str:
    return "\n".join(['#[version = "0.0.5"]', *lines]) + "\n"


def _matching(head: str, value: str, clauses: Sequence[str]) -> list[str]:
    return [f"def {head} {{", f"  match? ({value}) {{", *clauses, "  }", "}"]


def _array(suffix: str, array: str, tensor: str, nil: str = "") -> list[str]:
    """Functions common to all arrays: create, read, write, scatter, concatenate."""
    nil = nil or f"tensor_nil_{suffix}"
    return f"""
def @tensor_array_{suffix}(%n: int32) -> {array} {{
  if (%n == 0) {{ Nil }} else {{ Cons({nil}, @tensor_array_{suffix}(%n - 1)) }}
}}
def @tensor_array_read_{suffix}(%all: {array}, %n: int32) -> {tensor} {{ @nth(%all, %n) }}
def @tensor_array_write_{suffix}(%all: {array}, %n: int32, %v: {tensor}) -> {array} {{
  @update(%all, %n, %v)
}}
def @tensor_array_scatter_rest_{suffix}(
  %all: {array}, %places: Tensor[(?), int32], %values: {array}, %i: int32
) -> {array} {{
  match (%values) {{
    Nil => %all,
    Cons(%value, %others) => {{
      let %next = @update(%all, take(%places, %i), %value);
      @tensor_array_scatter_rest_{suffix}(%next, %places, %others, %i + 1)
    }},
  }}
}}
def @tensor_array_scatter_{suffix}(
  %all: {array}, %places: Tensor[(?), int32], %values: {array}
) -> {array} {{
  @tensor_array_scatter_rest_{suffix}(%all, %places, %values, 0)
}}
""".strip().split("\n")


def _unstack(name: str, made: str, kind: str, array: str) -> list[str]:
    return f"""
def @{name}_rest(%i: int32, %all: {kind}) -> {array} {{
  if (%i == take(shape_of(%all, dtype="int32"), 0)) {{ Nil }} else {{
    Cons({made}(take(%all, %i, axis=0)), @{name}_rest(%i + 1, %all))
  }}
}}
def @{name}(%all: {kind}) -> {array} {{ @{name}_rest(0, %all) }}
""".strip().split("\n")


def _split(suffix: str, array: str, tensor: str) -> list[str]:
    return f"""
def @tensor_array_split_rest_{suffix}(
  %all: {array}, %v: {tensor}, %from: int32, %i: int32, %lengths: Tensor[(?), int32]
) -> {array} {{
  if (%i == take(shape_of(%lengths, dtype="int32"), 0)) {{ %all }} else {{
    let %to = %from + take(%lengths, %i);
    let %next = @update(%all, %i, @tensor_take_{suffix}(%v, %from, %to));
    @tensor_array_split_rest_{suffix}(%next, %v, %to, %i + 1, %lengths)
  }}
}}
def @tensor_array_split_{suffix}(
  %all: {array}, %v: {tensor}, %lengths: Tensor[(?), int32]
) -> {array} {{
  @tensor_array_split_rest_{suffix}(%all, %v, 0, 0, %lengths)
}}
""".strip().split("\n")


def _join(name: str, each: _Kind, whole: _Kind) -> list[str]:
    """Concatenate the tensors of an array of one kind into a tensor of another kind."""
    return f"""
def @{name}(%all: {each.array}) -> {whole.tensor} {{
  match? (%all) {{
    Cons({each.made}(%last), Nil) => {whole.made}(%last),
    Cons({each.made}(%first), %others) => {{
      match? (@{name}(%others)) {{
        {whole.made}(%rest) => {whole.made}(concatenate((%first, %rest))),
      }}
    }},
  }}
}}
""".strip().split("\n")


def _stack(suffix: str, array: str, tensor: str, join: str) -> list[str]:
    """Stack all or selected tensors of an array into one tensor."""
    return f"""
def @tensor_array_stack_{suffix}(%all: {array}) -> {tensor} {{
  @{join}(@map(@tensor_expand_dims_{suffix}, %all))
}}
def @tensor_array_chosen_{suffix}(
  %all: {array}, %places: Tensor[(?), int32], %i: int32
) -> {array} {{
  if (%i == take(shape_of(%places, dtype="int32"), 0)) {{ Nil }} else {{
    Cons(@nth(%all, take(%places, %i)), @tensor_array_chosen_{suffix}(%all, %places, %i + 1))
  }}
}}
def @tensor_array_gather_{suffix}(%all: {array}, %places: Tensor[(?), int32]) -> {tensor} {{
  @tensor_array_stack_{suffix}(@tensor_array_chosen_{suffix}(%all, %places, 0))
}}
""".strip().split("\n")


def _concat(suffix: str, array: str, tensor: str) -> list[str]:
    return f"""
def @tensor_array_concat_{suffix}(%all: {array}) -> {tensor} {{
  match (%all) {{
    Nil => tensor_nil_{suffix},
    Cons(%last, Nil) => %last,
    Cons(%first, %others) => {{
      @tensor_concatenate_{suffix}(%first, @tensor_array_concat_{suffix}(%others))
    }},
  }}
}}
""".strip().split("\n")
