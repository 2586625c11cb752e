"""Fused functions that read fields of several tuples get the right ones."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler.errors import BuildError
from compiler.lowering.build import build
from compiler.lowering.graph_passes.fuse import fuse
from compiler.runtime import graph_executor
from compiler.tvm_workarounds.alias_tuples import alias_tuples

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
# One kernel concatenates up to 32 tensors.
SHAPE, TUPLES, FIELDS = (4, 8), 15, 2


def many_tuples():
    """A module that reads the fields of many tuples, and the results of `x`."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, *SHAPE), "float32"))

    inner = relax.Var("y", relax.TensorType((1, *SHAPE), "float32"))
    with builder.function("parts", [inner], private=True):
        fields = [
            builder.emit(op.multiply(inner, relax.const(float(i), "float32")))
            for i in range(FIELDS)
        ]
        builder.emit_func_output(relax.Tuple(fields))
    parts = builder.get().get_global_var("parts")
    with builder.function("main", [x]):
        with builder.dataflow():
            tuples = [
                builder.emit(
                    relax.Call(parts, [builder.emit(op.add(x, relax.const(float(i), "float32")))])
                )
                for i in range(TUPLES)
            ]
            read = [[builder.emit(each[i]) for i in range(FIELDS)] for each in tuples]
            out = builder.emit(op.concat([field for each in read for field in each], axis=0))
            out = builder.emit_output(op.exp(op.negative(out)))
        builder.emit_func_output(out)
    return builder.get()


def are_in_their_places():
    """Whether a build of `many_tuples` computes what it says."""
    given = np.random.default_rng(0).uniform(size=(1, *SHAPE)).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        library = build(many_tuples(), TARGET)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=given)
    expected = np.concatenate(
        [np.exp(-(given + i) * j) for i in range(TUPLES) for j in range(FIELDS)]
    )
    return np.allclose(executor.get_output(0).numpy(), expected, rtol=1e-5)


def test_fields_of_many_tuples_stay_in_their_places():
    assert are_in_their_places()


def test_tvm_still_gives_fused_functions_the_wrong_fields(monkeypatch):
    """FuseOps alone is right only if its hash map holds the tuples from last to first."""
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "0")
    monkeypatch.setattr("compiler.lowering.graph_passes.fuse.alias_tuples", lambda mod: mod)
    try:
        right = are_in_their_places()
    except BuildError:  # functions with other numbers of arguments than parameters
        right = False
    assert not right


@pytest.mark.parametrize("fields", [1, 2])
def test_what_can_be_fused_with_its_readers_and_single_reads_have_no_aliases(fields):
    builder = relax.BlockBuilder()
    shape = relax.TensorType(SHAPE, "float32")
    x, given = relax.Var("x", shape), relax.Var("given", relax.TupleType([shape, shape]))
    with builder.function("main", [x, given]):
        with builder.dataflow():
            halves = builder.emit(op.split(x, 2, axis=1))
            half = builder.emit(op.add(halves[0], halves[1]))
            read = [builder.emit(given[i]) for i in range(fields)]
            out = builder.emit_output(op.concat([half, *read], axis=1))
        builder.emit_func_output(out)
    mod = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(builder.get()))
    aliases = [
        binding
        for block in alias_tuples(mod)["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Var)
    ]
    assert len(aliases) == (2 if fields == 2 else 0)
    assert all(each.value.same_as(given) for each in aliases)
    fused, *_ = fuse(builder.get(), TARGET)
    called = [
        binding.value.args[1].fields
        for block in fused["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]
    assert [len(each) for each in called] == [1 + fields]
