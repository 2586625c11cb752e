"""Which concatenations need no kernel of their own, and that the numbers stay the same."""

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi
from tvm.relax import op

from compiler import relay
from compiler.lowering.codegen import concat_in_place
from compiler.lowering.codegen.concat_in_place import CONCATENATES, part_offsets
from compiler.runtime import load_module
from compiler.runtime.debugger.debug_executor import GraphModuleDebug

TARGET = "llvm -mcpu=x86-64-v3"  # blocks of eight channels


class Network:
    """Convolutions with 1x1 kernels, built as Relax and computed by numpy in float64."""

    def __init__(self, channels=16, size=6, batch=1):
        self.rng = np.random.default_rng(0)
        self.builder = relax.BlockBuilder()
        self.shape = (batch, channels, size, size)
        self.param = relax.Var("x", relax.TensorType(self.shape, "float32"))
        self.data = self.rng.standard_normal(self.shape).astype("float32")

    @property
    def input(self):
        return self.param, self.data.astype("float64")

    def conv(self, value, channels):
        var, array = value
        weight = self.rng.standard_normal((channels, array.shape[1], 1, 1)).astype("float32")
        call = op.nn.relu(op.nn.conv2d(var, relax.const(weight)))
        result = np.einsum("oc,nchw->nohw", weight[:, :, 0, 0].astype("float64"), array)
        return self.builder.emit(call), np.maximum(result, 0)

    def concat(self, *values):
        call = op.concat([var for var, _ in values], axis=1)
        return self.builder.emit(call), np.concatenate([array for _, array in values], axis=1)

    def pool(self, value):
        """A reader that a concatenation is not fused with."""
        var, array = value
        call = op.nn.max_pool2d(var, (2, 2), (2, 2))
        n, c, h, w = array.shape
        return self.builder.emit(call), array.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))

    def module(self, describe):
        """The module, and the expected results of `describe(self)`."""
        with self.builder.function("main", [self.param]):
            with self.builder.dataflow():
                outs = describe(self)
                self.expected = [array for _, array in outs]
                out = self.builder.emit_output(relax.Tuple([var for var, _ in outs]))
            self.builder.emit_func_output(out)
        return self.builder.get()

    def upsample(self, value):
        """What a concatenation would be fused with."""
        var, array = value
        for axis in (2, 3):
            var, array = self.builder.emit(op.repeat(var, 2, axis)), array.repeat(2, axis)
        return var, array

    def half(self, value, second):
        var, array = value
        n = array.shape[1] // 2
        call = op.strided_slice(var, [1], [n * second], [n * (1 + second)])
        return self.builder.emit(call), array[:, n * second : n * (1 + second)]

    def negative(self, value):
        return self.builder.emit(op.negative(value[0])), -value[1]


def check_debugger(library, net):
    """The debugger sees each kernel write one tensor."""
    executor = GraphModuleDebug(
        library["debug_create"]("default", tvm.cpu()), [tvm.cpu()], library.graph_json, None
    )
    executor.set_input("x", net.data)
    executor.run()
    nodes = executor.debug_datum.get_graph_nodes()
    kernels = [node["attrs"] for node in nodes if node["op"] == "tvm_op"]
    assert len(kernels) == sum(kernel.calls for kernel in library.report.kernels)
    assert {attrs["num_outputs"] for attrs in kernels} == {"1"}


def fire(net):
    x = net.conv(net.input, 16)
    return [net.pool(net.concat(net.conv(x, 16), net.conv(x, 32)))]


def chain(net):
    x = net.conv(net.input, 16)
    for _ in range(3):
        x = net.concat(x, net.conv(x, 16))
    return [net.pool(x)]


def all_before(net):
    features = [net.conv(net.input, 16)]
    for _ in range(3):
        x = net.concat(*features) if len(features) > 1 else features[0]
        features.append(net.conv(x, 16))
    return [net.pool(net.concat(*features))]


def reads_parts(net):
    x = net.conv(net.input, 16)
    some, other = net.conv(x, 16), net.conv(x, 16)
    return [net.pool(net.concat(some, other)), net.conv(some, 16), net.conv(other, 16)]


def of_input(net):
    return [net.pool(net.concat(net.input, net.conv(net.input, 16)))]


def is_given_back(net):
    some = net.conv(net.input, 16)
    return [net.pool(net.concat(some, net.conv(some, 16))), some]


def of_itself(net):
    x = net.conv(net.input, 16)
    return [net.pool(net.concat(x, x))]


def in_two_orders(net):
    x = net.conv(net.input, 16)
    some, other = net.conv(x, 16), net.conv(x, 32)
    return [net.pool(net.concat(some, other)), net.pool(net.concat(other, some))]


def is_result(net):
    x = net.conv(net.input, 16)
    whole = net.concat(net.conv(x, 16), net.conv(x, 16))
    return [whole]


def halves(net):
    x = net.conv(net.input, 32)
    second = net.half(x, 1)
    return [net.pool(net.concat(net.half(x, 0), second, net.conv(second, 16)))]


def skipped(net):
    skip = net.conv(net.input, 16)
    deep = net.conv(net.pool(skip), 32)
    return [net.pool(net.concat(net.upsample(deep), skip))]


def one_pass_with_its_reader(net):
    x = net.conv(net.input, 16)
    return [net.pool(net.negative(net.concat(net.conv(x, 16), net.conv(x, 16))))]


def build(net, describe, **context):
    with tvm.transform.PassContext(**{"opt_level": 3, **context}):
        return relay.build(net.module(describe), TARGET)


def concatenations(library):
    names = [(kernel.operators, kernel.calls) for kernel in library.report.kernels]
    return sum(calls for operators, calls in names if "concatenate" in operators)


def check(library, net):
    executor = library["default"](tvm.cpu())
    for _ in range(2):
        executor.run(x=net.data)
        for i, expected in enumerate(net.expected):
            out = executor.get_output(i).numpy()
            assert np.abs(out - expected).max() <= 1e-5 * np.abs(expected).max()


IN_PLACE = [fire, chain, all_before, reads_parts, of_input, is_given_back, halves, skipped]


@pytest.mark.parametrize("describe", IN_PLACE)
def test_parts_are_written_to_where_they_belong(describe):
    net = Network()
    library = build(net, describe)
    assert concatenations(library) == 0
    check(library, net)


@pytest.mark.parametrize("describe", [of_itself, in_two_orders, one_pass_with_its_reader])
def test_what_has_another_place_is_copied(describe):
    net = Network()
    library = build(net, describe)
    assert concatenations(library) == 1
    check(library, net)


@pytest.mark.parametrize("of_input", [True, False])
def test_inputs_and_results_of_the_library_have_memory_of_their_own(of_input):
    rng = np.random.default_rng(0)
    data, *weights = (rng.standard_normal((16, 16)).astype("float32") for _ in range(3))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first, second = (builder.emit(op.matmul(x, relax.const(w))) for w in weights)
            whole = builder.emit(op.concat([x if of_input else first, second], axis=0))
            out = builder.emit_output(relax.Tuple([whole, first]))
        builder.emit_func_output(out)
    with tvm.transform.PassContext(opt_level=2):  # where products stay apart
        library = relay.build(builder.get(), TARGET)
    assert concatenations(library) == 1
    executor = library["default"](tvm.cpu())
    executor.run(x=data)
    products = [data.astype("float64") @ w for w in weights]
    expected = np.concatenate([data if of_input else products[0], products[1]])
    for i, wanted in enumerate([expected, products[0]]):
        out = executor.get_output(i).numpy()
        assert np.abs(out - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("describe", [fire, skipped])
def test_a_result_that_exceeds_the_caches_is_copied(describe, monkeypatch):
    monkeypatch.setattr(concat_in_place, "SHARE_OF_L3", 0)
    net = Network()
    library = build(net, describe)
    assert concatenations(library) == 1
    check(library, net)


def test_the_parts_of_two_images_are_not_contiguous():
    net = Network(batch=2)
    library = build(net, fire)
    assert concatenations(library) == 1
    check(library, net)


def test_a_result_of_the_library_may_be_written_part_by_part():
    net = Network()
    library = build(net, is_result)
    check(library, net)


@pytest.mark.parametrize("context", [{"disabled_pass": ["ConcatInPlace"]}, {"opt_level": 2}])
def test_it_can_be_turned_off(context):
    net = Network()
    library = build(net, chain, **context)
    assert concatenations(library) == 3
    check(library, net)


def test_an_exported_library_and_one_with_kept_tensors_do_the_same(tmp_path):
    net = Network()
    library = build(net, all_before, required_pass=["StaticAllocation"])
    assert concatenations(library) == 0
    library.export_library(tmp_path / "lib.so")
    loaded = load_module(tmp_path / "lib.so")
    check(loaded, net)
    entry = loaded.entry(tvm.cpu())
    for _ in range(2):
        (out,) = entry(tvm.runtime.tensor(net.data))
        assert np.abs(out.numpy() - net.expected[0]).max() <= 1e-5 * net.expected[0].max()


@pytest.mark.parametrize("describe", [fire, chain, all_before])
def test_the_debugger_knows_what_each_kernel_wrote(describe):
    net = Network()
    library = build(net, describe)
    check_debugger(library, net)


def concatenation(shapes, axis, dtype="float32"):
    tensors = [te.placeholder(shape, dtype) for shape in shapes]
    func = te.create_prim_func([*tensors, topi.concatenate(tensors, axis)])
    return func.with_attr(CONCATENATES, True)


def test_offsets_are_those_of_contiguous_aligned_parts():
    assert part_offsets(concatenation([(1, 2, 4, 8), (1, 3, 4, 8)], 1)) == [0, 2 * 4 * 8 * 4]
    assert part_offsets(concatenation([(2, 16), (1, 16), (3, 16)], 0)) == [0, 128, 192]
    assert part_offsets(concatenation([(2, 2, 16), (2, 3, 16)], 1)) is None
    assert part_offsets(concatenation([(1, 8), (1, 8)], 1)) is None  # 32 bytes
    assert part_offsets(concatenation([(1, 8), (1, 8)], 1, "float64")) == [0, 64]
    func = concatenation([(2, 16), (1, 16)], 0)
    assert part_offsets(func.without_attr(CONCATENATES)) is None


def test_parts_whose_extents_only_running_tells_are_copied():
    x = relay.var("x", shape=(2, 3), dtype="float32")
    places = relay.argwhere(x)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.concatenate([places, places], 0)))
    value = np.array([[0, 1, 0], [1, 0, 1]], "float32")
    with tvm.transform.PassContext(opt_level=3):
        found = relay.create_executor("vm", mod, target="llvm").evaluate()(value).numpy()
    np.testing.assert_array_equal(found, np.tile(np.argwhere(value), (2, 1)))
