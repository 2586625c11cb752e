"""Divisions of integers by 0, and of the smallest integer by -1."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import helper

from compiler import relay
from compiler.errors import BuildError, DivisionByZeroError, InputError
from compiler.runtime.graph_executor import GraphModule

_SIGNED = ["int8", "int32", "int64"]


def _smallest(dtype: str) -> int:
    return int(np.iinfo(dtype).min)


def _operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    dividend = np.array([_smallest(dtype), 7, -7, 100, _smallest(dtype), 0], dtype)
    return dividend, np.array([-1, 2, 2, -1, 3, -5], dtype)


def _built(mod: tvm.IRModule, level: int, params: object = None) -> GraphModule:
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(mod, "llvm", params=params)
    return GraphModule(library["default"](tvm.cpu()))


def _every_division(dtypes: list[str]) -> tuple[tvm.IRModule, list[str]]:
    operators = [relay.divide, relay.floor_divide, relay.mod, relay.floor_mod]
    params, results = [], []
    for dtype in dtypes:
        a, b = (relay.var(f"{name}_{dtype}", shape=(6,), dtype=dtype) for name in "ab")
        params += [a, b]
        results += [operator(a, b) for operator in operators]
    return tvm.IRModule.from_expr(relay.Function(params, relay.Tuple(results))), dtypes


@pytest.mark.parametrize("level", [0, 3])
def test_divisions_of_integers_are_exact_and_wrap_where_numpy_does(level: int) -> None:
    mod, dtypes = _every_division(_SIGNED)
    module = _built(mod, level)
    values = {}
    for dtype in dtypes:
        values[f"a_{dtype}"], values[f"b_{dtype}"] = _operands(dtype)
    module.run(**values)
    for place, dtype in enumerate(dtypes):
        wide = [int(v) for v in values[f"a_{dtype}"]], [int(v) for v in values[f"b_{dtype}"]]
        toward_zero = [abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1) for a, b in zip(*wide)]
        expected = [
            toward_zero,
            [a // b for a, b in zip(*wide)],
            [a - q * b for a, b, q in zip(*wide, toward_zero)],
            [a % b for a, b in zip(*wide)],
        ]
        for index, exact in enumerate(expected):
            wrapped = np.array([_wrapped(each, dtype) for each in exact], dtype)
            own = module.get_output(4 * place + index).numpy()
            np.testing.assert_array_equal(own, wrapped)


def _wrapped(value: int, dtype: str) -> int:
    bits = np.dtype(dtype).itemsize * 8
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("name", ["divide", "floor_divide", "mod", "floor_mod"])
def test_a_division_by_zero_names_the_operator(name: str, dtype: str) -> None:
    a, b = (relay.var(each, shape=(6,), dtype=dtype) for each in "ab")
    module = _built(tvm.IRModule.from_expr(relay.Function([a, b], getattr(relay, name)(a, b))), 3)
    dividend, divisor = np.arange(6).astype(dtype), np.ones(6, dtype)
    divisor[4] = 0
    with pytest.raises(DivisionByZeroError, match=f"^{name}: an integer is divided by 0"):
        module.run(a=dividend, b=divisor)
    module.run(a=dividend, b=np.ones(6, dtype))


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_onnx_divisions_agree_with_onnxruntime_and_raise_on_zero(operator: str) -> None:
    a, b = _operands("int64")
    a, b = np.stack([a, a + 1]), np.where(b == -1, 2, b)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(operator, ["a", "b"], ["y"])],
            "division",
            [helper.make_tensor_value_info(n, 7, v.shape) for n, v in (("a", a), ("b", b))],
            [helper.make_tensor_value_info("y", 7, a.shape)],
        ),
        opset_imports=[helper.make_opsetid("", 14)],
        ir_version=8,
    )
    mod, params = relay.frontend.from_onnx(model)
    module = _built(mod, 0, params)
    module.run(a=a, b=b)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected)
    with pytest.raises(DivisionByZeroError):
        module.run(a=a, b=np.zeros_like(b))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_step_of_zero_is_an_error_of_arange(dtype: str) -> None:
    step = relay.var("step", shape=(), dtype=dtype)
    start, stop = relay.const(1, dtype), relay.const(6, dtype)
    counted = relay.Function([step], relay.arange(start, stop, step, dtype=dtype))
    module = _built(tvm.IRModule.from_expr(counted), 3)
    for value, expected in ((2, [1, 3, 5]), (-1, [])):
        module.run(step=np.array(value, dtype))
        assert module.get_output(0).numpy().tolist() == expected
    with pytest.raises(DivisionByZeroError, match=r"^arange: the step is 0"):
        module.run(step=np.array(0, dtype))


def test_codes_of_a_reshape_that_stand_for_many_extents_must_be_known_before() -> None:
    x, shape = relay.var("x", shape=(3, 4)), relay.var("shape", shape=(3,), dtype="int64")
    module = _built(tvm.IRModule.from_expr(relay.Function([x, shape], relay.reshape(x, shape))), 3)
    data = np.arange(12, dtype="float32").reshape(3, 4)
    module.run(x=data, shape=np.array([2, -1, 2]))
    np.testing.assert_array_equal(module.get_output(0).numpy(), data.reshape(2, 3, 2))
    for codes in ([3, -2, 1], [-4, 1, 3]):
        with pytest.raises(InputError, match=r"^reshape: -2 and -4"):
            module.run(x=data, shape=np.array(codes))


def test_constant_divisors_are_checked_when_a_module_is_built() -> None:
    a = relay.var("a", shape=(3,), dtype="int32")
    zero = relay.Function([a], relay.floor_divide(a, relay.const(np.array([1, 0, 2], "int32"))))
    with pytest.raises(
        BuildError, match=r"^floor_divide: an integer is divided by 0 \(a constant\)"
    ):
        relay.build(tvm.IRModule.from_expr(zero), "llvm")
    mixed = relay.Function([a], relay.divide(a, relay.const(np.array([1, -1, 2], "int32"))))
    library = relay.build(tvm.IRModule.from_expr(mixed), "llvm")
    assert len(library.report.kernels) == 1
    module = GraphModule(library["default"](tvm.cpu()))
    module.run(a=np.array([5, _smallest("int32"), 5], "int32"))
    assert module.get_output(0).numpy().tolist() == [5, _smallest("int32"), 2]
