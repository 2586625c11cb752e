"""Outlining in modules with tuples, several blocks, shapes, symbolic sizes and other calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from compiler.errors import PartitionError
from compiler.partition import Strategy, contract, partition, register, subgraphs
from tests.sweep import FACTOR

from .conftest import claim, execute, random


@I.ir_module
class Tuples:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            parts = R.split(x, 3, axis=1)
            first = parts[0]
            last = parts[2]
            pair = (first, last)
            one = R.exp(pair[1])
            joined = R.concat(pair, axis=1)
            whole = R.concat(parts, axis=1)
            out = (joined, one, first, (whole, last))
            R.output(out)
        return out


def tuples(x: np.ndarray) -> list[np.ndarray]:
    first, last = x[:, :2], x[:, 4:]
    return [np.concatenate([first, last], 1), np.exp(last), first, x, last]


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        (("split",), [("split",)]),
        (("concat",), [("concatenate",), ("concatenate",)]),
        (("split", "exp"), [("split", "exp")]),
        (("exp", "concat"), [("exp",), ("concatenate",), ("concatenate",)]),
        (("split", "exp", "concat"), [("split", "exp", "concatenate", "concatenate")]),
    ],
)
def test_tuples_cross_the_border_of_a_subgraph(
    operators: tuple[str, ...], expected: list[tuple[str, ...]], claiming: Callable[..., str]
) -> None:
    result = partition(Tuples, claiming(*operators))
    assert sorted(info.operators for info in subgraphs(result)) == sorted(expected)
    x = random((2, 6))
    for got, wanted in zip(execute(result, x), tuples(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_tuple_between_members_ties_nothing_to_main(claiming: Callable[..., str]) -> None:
    result = partition(Tuples, claiming("split", "concat"))
    (info,) = subgraphs(result)
    assert info.operators == ("split", "concatenate", "concatenate")
    assert info.input_names == ("x",)
    assert all(not isinstance(p.ty, relax.TupleType) for p in result[info.name].params)


@I.ir_module
class Uneven:
    @R.function
    def main(x: R.Tensor((2, 6), "float32"), y: R.Tensor((2, 9), "float32")):
        with R.dataflow():
            parts = R.split(x, [1, 3], axis=1)
            wave = R.exp(y)
            both = R.concat((wave, parts[2]), axis=1)
            last = R.log(both)
            first = R.concat((parts[2], parts[0]), axis=1)
            out = (R.log(wave), last, first)
            R.output(out)
        return out


def test_inputs_and_outputs_have_the_order_that_the_accept_callback_sees(
    claiming: Callable[..., str],
) -> None:
    shown: list[dict[str, Any]] = []

    def accept(graph_json, subgraph_id, options, attrs, args, aux) -> bool:
        shown.append(json.loads(graph_json))
        return True

    result = partition(Uneven, claiming("split", "exp", "log", accept_subgraph=accept))
    for info, graph in zip(subgraphs(result), shown, strict=True):
        function = result[info.name]
        inputs = [node["attrs"] for node in graph["nodes"] if node["op"] == "null"]
        assert tuple(attrs.get("argName", "") for attrs in inputs) == info.input_names
        assert [attrs["shape"] for attrs in inputs] == [
            str(list(map(int, parameter.ty.shape))) for parameter in function.params
        ]
        ty = function.ret_ty
        returned = ty.fields if isinstance(ty, relax.TupleType) else [ty]
        assert [outputs(graph["nodes"][i])[k] for i, k, _ in graph["heads"]] == [
            list(map(int, part.shape)) for part in returned
        ]
    assert any(len(graph["heads"]) > 1 for graph in shown)


def outputs(node: dict[str, Any]) -> list[list[int]]:
    shapes = json.loads(node["attrs"]["shape"])
    return shapes if isinstance(shapes[0], list) else [shapes]


@I.ir_module
class Blocks:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            R.output(a)
        with R.dataflow():
            b = R.exp(a)
            R.output(b)
        _ = R.call_packed("vm.builtin.invoke_debug_func_absent", b, ty_args=[R.Tuple()])
        with R.dataflow():
            c = R.exp(b)
            d = R.add(c, y)
            R.output(d)
        return d


def test_regions_span_neighboring_dataflow_blocks_but_no_call_with_side_effects(
    claiming: Callable[..., str],
) -> None:
    result = partition(Blocks, claiming("exp", "add"))
    relax.analysis.well_formed(result)
    assert [info.operators for info in subgraphs(result)] == [("exp", "exp"), ("exp", "add")]
    kinds = [type(block).__name__ for block in result["main"].body.blocks]
    assert kinds == ["DataflowBlock", "BindingBlock", "DataflowBlock"]


def test_a_group_across_a_call_with_side_effects_is_refused() -> None:
    with pytest.raises(PartitionError, match="different blocks"):
        contract(Blocks, [["b", "c"]], [{}])
    with pytest.raises(PartitionError, match="not a call of an operator in a dataflow block"):
        contract(Blocks, [["_"]], [{}])


@I.ir_module
class WithKernel:
    @T.prim_func(private=True, s_tir=True)
    def double(source: T.Buffer((T.int64(4),), "float32"), out: T.Buffer((T.int64(4),), "float32")):
        for i in range(T.int64(4)):
            with T.sblock("double"):
                vi = T.axis.spatial(T.int64(4), i)
                out[vi] = source[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = WithKernel
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir(cls.double, (a,), out_ty=R.Tensor((4,), "float32"))
            shape = R.shape([2, 2])
            c = R.reshape(b, shape)
            d = R.zeros(R.shape([2, 2]), "float32")
            e = R.add(c, d)
            R.output(e)
        return e


def test_kernels_shapes_and_operators_without_inputs_move_along(
    claiming: Callable[..., str],
) -> None:
    result = partition(WithKernel, claiming("call_tir", "reshape", "zeros", "add"))
    (info,) = subgraphs(result)
    assert info.operators == ("call_tir", "reshape", "zeros", "add")
    x = random((4,))
    wanted = (2 * np.exp(x)).reshape(2, 2)
    np.testing.assert_allclose(execute(result, x)[0], wanted, rtol=1e-6)
    alone = partition(WithKernel, claiming("zeros", name="zeros_only"))
    assert subgraphs(alone)[0].input_names == ()
    np.testing.assert_allclose(execute(alone, x)[0], wanted, rtol=1e-6)


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.exp(x)
            b = R.reshape(a, R.shape([n * 4]))
            c = R.log(b)
            d = R.reshape(c, R.shape([n, 4]))
            R.output(d)
        return d


@pytest.mark.parametrize("operators", [("exp", "reshape"), ("reshape",), ("log",)])
def test_symbolic_sizes_reach_the_function(
    operators: tuple[str, ...], claiming: Callable[..., str]
) -> None:
    result = partition(Symbolic, claiming(*operators))
    assert subgraphs(result)
    x = random((3, 4))
    np.testing.assert_allclose(execute(result, x)[0], x, rtol=1e-5)


def test_an_output_read_twice_and_returned_is_one_output(claiming: Callable[..., str]) -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(x))
            b = builder.emit(relax.op.log(a))
            c = builder.emit(relax.op.multiply(a, b))
            out = builder.emit_output(relax.Tuple([a, c, a]))
        builder.emit_func_output(out)
    result = partition(builder.get(), claiming("exp"))
    (info,) = subgraphs(result)
    assert not isinstance(result[info.name].ret_ty, relax.TupleType)
    value = random((4,))
    wanted = [np.exp(value), np.exp(value) * value, np.exp(value)]
    for got, expected in zip(execute(result, value), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_operations_that_nobody_reads_can_be_outlined() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            unread = builder.emit(relax.op.exp(x))
            out = builder.emit_output(relax.op.log(x))
        builder.emit_func_output(out)
    result = contract(builder.get(), [[unread.name]], [{}])
    assert len(result.get_global_vars()) == 2
    value = random((4,))
    np.testing.assert_allclose(execute(result, value)[0], np.log(value), rtol=1e-5, atol=1e-6)


OPERATORS = ("exp", "negative", "add", "multiply", "split")


def random_module(rng: np.random.Generator) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """A module over `random((2, 4))` with 14 steps, and the outputs that numpy gives."""
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    weight = random((2, 4), 3)
    variables: list[Any] = [x]
    values = [random((2, 4)).astype("float64")]
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            for _ in range(14):
                one, two = (int(i) for i in rng.integers(0, len(variables), 2))
                name = str(rng.choice(OPERATORS))
                if name == "split":
                    halves = builder.emit(relax.op.split(variables[one], 2, axis=1))
                    first, second = rng.integers(0, 2, 2)
                    joined = relax.op.concat((halves[int(first)], halves[int(second)]), axis=1)
                    known = np.split(values[one], 2, axis=1)
                    value = np.concatenate([known[first], known[second]], axis=1)
                elif name in ("add", "multiply"):
                    constant = rng.random() < 0.3
                    other = relax.const(weight) if constant else variables[two]
                    joined = getattr(relax.op, name)(variables[one], other)
                    value = getattr(np, name)(values[one], weight if constant else values[two])
                else:  # tanh keeps the values small
                    joined = getattr(relax.op, name)(builder.emit(relax.op.tanh(variables[one])))
                    value = getattr(np, name)(np.tanh(values[one]))
                variables.append(builder.emit(joined))
                values.append(value)
            heads = [len(variables) - 1, *(int(i) for i in rng.integers(0, len(variables), 2))]
            out = builder.emit_output(relax.Tuple([variables[i] for i in heads]))
        builder.emit_func_output(out)
    return builder.get(), [values[i] for i in heads]


@given(st.integers(0, 2**32), st.sets(st.sampled_from(OPERATORS), min_size=1))
@settings(max_examples=5 * FACTOR, deadline=None)
def test_random_graphs_compute_the_same_after_partitioning(seed: int, claimed: set[str]) -> None:
    module, expected = random_module(np.random.default_rng(seed))
    register("random", Strategy("s", claim(*claimed)), replace=True)
    result = partition(module, "random")
    left = {
        binding.value.op.name.removeprefix("relax.")
        for block in result["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call) and isinstance(binding.value.op, tvm.ir.Op)
    }
    assert not left & claimed
    for value, wanted in zip(execute(result, random((2, 4))), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
