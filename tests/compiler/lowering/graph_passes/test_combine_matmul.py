"""Which products of an attention are computed as one, and that the numbers stay the same."""

from collections import Counter

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler import autotvm, relay
from compiler.lowering.graph_passes.combine_matmul import combine_matmul
from compiler.runtime import graph_executor
from schedules.config import ConfigEntity

B, S, K, H, D = 2, 33, 10, 3, 7
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
WEIGHTS = np.random.default_rng(0).standard_normal((3, K, H * D)).astype("float32") * 0.3
BIASES = np.random.default_rng(1).standard_normal((3, H * D)).astype("float32")


def network(biased=(True, True, True), sources=(0, 0, 0), extra=False, bias_first=False):
    """An attention whose q, k and v are products of the inputs with these indices."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{i}", relax.TensorType((B, S, K), "float32")) for i in sorted({*sources})
    ]
    emit = builder.emit
    with builder.function("main", inputs):
        with builder.dataflow():
            heads, products = [], []
            for i, source in enumerate(sources):
                product = emit(op.matmul(inputs[source], relax.const(WEIGHTS[i])))
                if biased[i]:
                    terms = [product, relax.const(BIASES[i])]
                    product = emit(op.add(*(terms[::-1] if bias_first else terms)))
                products.append(product)
                split = emit(op.reshape(product, (B, S, H, D)))
                heads.append(emit(op.permute_dims(split, [0, 2, 3, 1] if i == 1 else [0, 2, 1, 3])))
            weights = emit(op.nn.softmax(emit(op.matmul(heads[0], heads[1]))))
            out = emit(op.permute_dims(emit(op.matmul(weights, heads[2])), [0, 2, 1, 3]))
            out = emit(op.reshape(out, (B, S, H * D)))
            out = builder.emit_output(relax.Tuple([out, products[1]]) if extra else out)
        builder.emit_func_output(out)
    return builder.get()


def inputs_of(mod):
    rng = np.random.default_rng(2)
    return [rng.standard_normal((B, S, K)).astype("float32") for _ in mod["main"].params]


def reference(mod, biased, sources):
    xs = inputs_of(mod)
    q, k, v = (
        (xs[source].astype("float64") @ WEIGHTS[i] + (BIASES[i] if biased[i] else 0))
        .reshape(B, S, H, D)
        .transpose(0, 2, 1, 3)
        for i, source in enumerate(sources)
    )
    scores = np.exp(q @ k.transpose(0, 1, 3, 2))
    out = scores / scores.sum(-1, keepdims=True) @ v
    return out.transpose(0, 2, 1, 3).reshape(B, S, H * D)


def run(mod, **context):
    with tvm.transform.PassContext(opt_level=3, **context):
        library = relay.build(mod, "llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for i, x in enumerate(inputs_of(mod)):
        executor.set_input(f"x{i}", x)
    executor.run()
    kernels = Counter()
    for kernel in library.report.kernels:
        kernels[kernel.implementation] += kernel.calls
    return executor.get_output(0).numpy(), kernels


ALL, NONE = (True, True, True), (False, False, False)


@pytest.mark.parametrize(
    ("biased", "sources", "dense_calls"),
    [
        (ALL, (0, 0, 0), 1),
        (NONE, (0, 0, 0), 1),
        ((True, False, True), (0, 0, 0), 1),
        (ALL, (0, 1, 1), 2),
        (ALL, (0, 0, 1), 2),
        (ALL, (0, 1, 2), 3),
    ],
)
def test_products_of_one_tensor_become_one_without_copies(biased, sources, dense_calls):
    mod = network(biased, sources)
    out, kernels = run(mod)
    assert kernels == {"dense_packed.x86": dense_calls, "attention.x86": 1}
    expected = reference(mod, biased, sources)
    assert np.abs(out - expected).max() < 1e-5 * np.abs(expected).max()


def test_the_bias_may_come_first():
    mod = network(bias_first=True)
    out, kernels = run(mod)
    assert kernels == {"dense_packed.x86": 1, "attention.x86": 1}
    expected = reference(mod, ALL, (0, 0, 0))
    assert np.abs(out - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_product_that_is_an_output_stays_alone():
    _, kernels = run(network(extra=True))
    assert kernels == {"dense_packed.x86": 2, "attention.x86": 1}


@pytest.mark.parametrize("name", ["CombineParallelMatmul", "FuseAttention"])
def test_they_stay_apart_where_a_pass_is_disabled(name):
    _, kernels = run(network(), disabled_pass=[name])
    assert kernels["dense_packed.x86"] >= 3


def test_a_product_with_a_tuning_record_stays_alone():
    mod = network()

    def recorded(_, workload):
        return (
            ConfigEntity(is_fallback=False, cost=1e-3) if workload[0].startswith("dense") else None
        )

    assert combine_matmul(mod, "main", TARGET, recorded).same_as(mod)
    assert not combine_matmul(mod, "main", TARGET, lambda *_: None).same_as(mod)


def test_the_products_are_tasks_one_by_one():
    mod = network()
    tasks = autotvm.task.extract_from_program(mod, {}, TARGET)
    columns = {task.args[1][1][0] for task in tasks if "dense" in task.name}
    assert columns == {H * D}
