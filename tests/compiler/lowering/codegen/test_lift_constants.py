from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.errors import BuildError
from compiler.lowering.codegen.lift_constants import lift_constants
from compiler.runtime import graph_executor


def module(emit, params=1, attrs=None) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{index}" if index else "x", relax.TensorType((4, 128), "float32"))
        for index in range(params)
    ]
    with builder.function("main", variables, attrs=attrs):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, *variables))
        builder.emit_func_output(result)
    return builder.get()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def run(mod, *args):
    mod = relax.transform.LegalizeOps()(mod)
    executable = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm"}))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](*args).numpy()


def test_large_constants_become_parameters_and_small_ones_stay():
    w, small = normal(128, 65), normal(64, seed=1)[:1]
    mod = module(
        lambda b, x: b.emit(relax.op.add(relax.op.matmul(x, relax.const(w)), relax.const(small)))
    )
    lifted, params = lift_constants(mod)
    assert [var.name for var in lifted["main"].params] == ["x", "p0"]
    assert [(name, value.shape) for name, value in params] == [("p0", (128, 65))]
    x = normal(4, 128, seed=2)
    expected = x.astype("float64") @ w + small
    np.testing.assert_allclose(run(lifted, x, params[0][1]), expected, rtol=1e-4, atol=1e-4)


def test_the_limit_is_the_largest_number_of_elements_that_stays():
    mod = module(lambda b, x: b.emit(relax.op.add(x, relax.const(normal(128)))))
    assert lift_constants(mod, min_elements=128)[1] == []
    assert len(lift_constants(mod, min_elements=127)[1]) == 1


def test_constants_of_kernel_calls_are_lifted():
    mod = module(lambda b, x: b.emit(relax.op.matmul(x, relax.const(normal(128, 8)))))
    lifted, params = lift_constants(relax.transform.LegalizeOps()(mod))
    assert len(params) == 1
    x = normal(4, 128, seed=1)
    expected = x.astype("float64") @ normal(128, 8)
    np.testing.assert_allclose(run(lifted, x, params[0][1]), expected, rtol=1e-4, atol=1e-4)


def test_equal_constants_become_one_parameter():
    near = normal(4, 128)
    near[2, 64] += 1

    def emit(b, x):
        for value in (normal(4, 128), normal(4, 128), near, normal(4, 128).reshape(2, 256)):
            x = b.emit(relax.op.add(x, relax.op.reshape(relax.const(value), (4, 128))))
        return x

    _, params = lift_constants(module(emit))
    assert [value.shape for _, value in params] == [(4, 128), (4, 128), (2, 256)]
    np.testing.assert_array_equal(params[1][1].numpy(), near)


def test_constants_of_equal_bytes_but_other_dtypes_stay_apart():
    def emit(b, x):
        ints = relax.const(np.zeros((4, 128), "int32"), "int32")
        return b.emit(
            relax.op.where(
                relax.op.equal(ints, relax.op.astype(x, "int32")),
                x,
                relax.const(np.zeros((4, 128), "float32")),
            )
        )

    _, params = lift_constants(module(emit))
    assert sorted(str(value.dtype) for _, value in params) == ["float32", "int32"]


def test_the_tensors_are_the_constants_own():
    constant = relax.const(normal(128, 128))
    _, params = lift_constants(module(lambda b, x: b.emit(relax.op.matmul(x, constant))))
    assert params[0][1].data_ptr() == constant.value.data_ptr()


def test_the_dataflow_block_and_the_number_of_inputs_are_kept():
    mod = module(lambda b, x: b.emit(relax.op.matmul(x, relax.const(normal(128, 128)))))
    main = lift_constants(mod)[0]["main"]
    assert isinstance(main.body.blocks[0], relax.DataflowBlock)
    assert main.attrs["num_input"] == 1
    given = module(
        lambda b, x, y: b.emit(relax.op.add(relax.op.add(x, y), relax.const(normal(4, 128)))),
        params=2,
        attrs={"num_input": 1},
    )
    assert lift_constants(given)[0]["main"].attrs["num_input"] == 1


def test_a_name_that_an_input_has_is_skipped():
    builder = relax.BlockBuilder()
    p0 = relax.Var("p0", relax.TensorType((4, 128), "float32"))
    with builder.function("main", [p0]):
        with builder.dataflow():
            total = builder.emit(relax.op.add(p0, relax.const(normal(4, 128))))
            total = builder.emit_output(relax.op.add(total, relax.const(normal(128, seed=1))))
        builder.emit_func_output(total)
    _, params = lift_constants(builder.get())
    assert [name for name, _ in params] == ["p1", "p2"]


def test_a_constant_that_is_the_result_is_lifted():
    lifted, params = lift_constants(module(lambda b, x: b.emit(relax.const(normal(4, 128)))))
    np.testing.assert_array_equal(
        run(lifted, np.zeros((4, 128), "float32"), params[0][1]), normal(4, 128)
    )


def test_the_module_given_is_not_changed():
    mod = module(lambda b, x: b.emit(relax.op.matmul(x, relax.const(normal(128, 128)))))
    before = mod.script()
    lift_constants(mod)
    assert mod.script() == before


def test_a_module_without_large_constants_comes_back_as_it_is():
    mod = module(lambda b, x: b.emit(relax.op.add(x, relax.const(1.0))))
    assert lift_constants(mod) == (mod, [])


def test_a_large_constant_in_another_function_is_an_error_that_names_it():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 128), "float32"))
    with builder.function("subgraph", [x], private=True):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, relax.const(normal(4, 128))))
        callee = builder.emit_func_output(result)
    y = relax.Var("y", relax.TensorType((4, 128), "float32"))
    with builder.function("main", [y]):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(callee, [y]))
        builder.emit_func_output(result)
    with pytest.raises(BuildError, match=r"'subgraph'.*\(4, 128\).*float32"):
        lift_constants(builder.get())


def test_a_large_constant_in_a_nested_function_is_an_error():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 128), "float32"))
    y = relax.Var("y", relax.TensorType((4, 128), "float32"))
    body = builder.normalize(relax.op.add(y, relax.const(normal(4, 128))))
    inner = relax.Function([y], relax.SeqExpr([], body), relax.TensorType((4, 128), "float32"))
    with builder.function("main", [x]):
        closure = builder.emit(inner)
        builder.emit_func_output(builder.emit(relax.Call(closure, [x])))
    with pytest.raises(BuildError, match=r"inside 'main'"):
        lift_constants(builder.get())


def test_a_module_without_main_is_an_error():
    with pytest.raises(BuildError, match="main"):
        lift_constants(tvm.IRModule({}))


def test_a_constant_without_elements_is_lifted_and_runs():
    """The executable's pool can't hold it."""
    empty = np.zeros((3, 0), "float16")
    mod = module(lambda b, x: relax.Tuple([b.emit(relax.op.exp(x)), relax.const(empty)]))
    _, params = lift_constants(mod)
    assert [tuple(value.shape) for _, value in params] == [(3, 0)]
    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(x=normal(4, 128))
    assert executor.get_output(1).numpy().shape == (3, 0)


def test_small_constants_that_main_returns_are_lifted():
    returned, added = relax.const(normal(4, seed=1)), relax.const(normal(1, seed=2))

    def emit(builder, x):
        pair = builder.emit(relax.Tuple([returned, builder.emit(relax.op.add(x, added))]))
        first = builder.emit(relax.TupleGetItem(pair, 0))
        return builder.emit(relax.Tuple([first, builder.emit(relax.TupleGetItem(pair, 1))]))

    _, params = lift_constants(module(emit))
    assert [value.shape for _, value in params] == [(4,)]


def test_small_constants_that_a_branch_returns_are_lifted():
    returned, condition = relax.const(normal(4)), relax.Var("c", relax.TensorType((), "bool"))
    result = relax.Var("result", returned.ty)
    branches = [relax.SeqExpr([], returned), relax.SeqExpr([], relax.const(normal(4, seed=1)))]
    block = relax.BindingBlock([relax.VarBinding(result, relax.If(condition, *branches))])
    main = relax.Function([condition], relax.SeqExpr([block], result), returned.ty)
    main = main.with_attr("global_symbol", "main")
    lifted, params = lift_constants(tvm.IRModule({"main": main}))
    assert len(params) == 2
    assert len(lifted["main"].params) == 3
