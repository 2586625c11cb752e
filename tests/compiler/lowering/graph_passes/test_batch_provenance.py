"""What one sample of a batch holds changes no bit of another's results."""

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax import op

from compiler import relay
from compiler import target as targets
from compiler.lowering import pass_flags, pipeline
from compiler.lowering.graph_passes import split_batch
from compiler.lowering.graph_passes.batch_provenance import ONE_SAMPLE, provenance
from compiler.relay.op.nn.recurrent import recurrent
from compiler.runtime import graph_executor
from schedules import strategy

TARGET = "llvm -mcpu=x86-64-v3 -num-cores=2"
BATCH, DIRTY = 3, 1


def values(seed, *shape):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def weight(*shape):
    return relax.const(values(7, *shape))


def network(shapes, emit, **attrs):
    """A module whose main returns what `emit(builder.emit, *inputs)` lists."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", inputs, attrs=attrs):
        with builder.dataflow():
            outs = [builder.emit(out) for out in emit(builder.emit, *inputs)]
            result = builder.emit_output(relax.Tuple(outs))
        builder.emit_func_output(result)
    return builder.get()


def built(mod):
    with tvm.transform.PassContext(opt_level=3, required_pass=["Strassen"]):
        return relay.build(mod, TARGET)


def results(library, inputs):
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**{f"x{i}": array for i, array in enumerate(inputs)})
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def assert_samples_apart(library, shapes, axes=None):
    """NaN, infinities and 1e30 in one sample; `axes` are those of inputs' and results' batch."""
    given, made = axes or ([0] * len(shapes), None)
    inputs = [values(i, *shape) for i, shape in enumerate(shapes)]
    clean = results(library, inputs)
    made = made or [0] * len(clean)
    assert all(np.isfinite(out).all() for out in clean)
    for dirt in (np.nan, -np.inf, 1e30):
        soiled = [array.copy() for array in inputs]
        for array, axis in zip(soiled, given):
            np.moveaxis(array, axis, 0)[DIRTY] = dirt
        for number, (before, after, axis) in enumerate(zip(clean, results(library, soiled), made)):
            others = [np.delete(out, DIRTY, axis) for out in (before, after)]
            assert np.array_equal(*others), f"{dirt} reached another sample in result {number}"


def implementations(library):
    return {kernel.implementation for kernel in library.report.kernels}


# --- every implementation ----------------------------------------------------------------


def conv2d(x, outputs, kernel=(1, 1), **attrs):
    inputs = int(x.ty.shape[1]) // attrs.get("groups", 1)
    return op.nn.conv2d(x, weight(outputs, inputs, *kernel), **attrs)


def of_other_ranks(emit, x):
    signals = emit(op.reshape(x, (BATCH, 16, 81)))
    return [
        op.nn.conv1d(signals, weight(16, 16, 3), padding=1),
        op.nn.conv2d_transpose(x, weight(16, 16, 2, 2), strides=(2, 2)),
        conv2d(x, 16, (3, 3), groups=4),
    ]


def products(emit, x):
    rows = emit(op.reshape(x, (BATCH * 33, 32)))
    scores = emit(op.matmul(x, emit(op.permute_dims(x, [0, 2, 1]))))
    return [
        op.matmul(x, weight(32, 48)),
        op.reshape(emit(op.matmul(rows, weight(32, 32))), x.ty.shape),
        scores,
        op.matmul(emit(op.nn.softmax(scores, -1)), x),
    ]


def attention(emit, q, k, v):
    heads = [emit(op.reshape(x, (BATCH, 33, 2, 16))) for x in (q, k, v)]
    q, v = (emit(op.permute_dims(x, [0, 2, 1, 3])) for x in (heads[0], heads[2]))
    scores = emit(op.matmul(q, emit(op.permute_dims(heads[1], [0, 2, 3, 1]))))
    return [op.matmul(emit(op.nn.softmax(scores, -1)), v)]


def without_anchor(emit, x):
    return [
        op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
        op.nn.layer_norm(x, weight(9), weight(9), [-1]),
        op.nn.group_norm(x, weight(16), weight(16), 4, 1, [2, 3]),
    ]


IMAGES, SEQUENCES = (BATCH, 16, 9, 9), (BATCH, 33, 32)
CASES = {
    "conv2d_strassen.x86": (lambda e, x: [conv2d(x, 16)], [(BATCH, 16, 8, 8)]),
    "conv2d_winograd.x86": (lambda e, x: [conv2d(x, 16, (1, 5), padding=(0, 2))], [IMAGES]),
    "conv2d_winograd_parts.x86": (lambda e, x: [conv2d(x, 8, (3, 3), strides=(2, 2))], [IMAGES]),
    "conv2d_direct.x86": (of_other_ranks, [IMAGES]),
    "conv2d_narrow.x86": (lambda e, x: [conv2d(x, 3, (5, 5), padding=(2, 2))], [(3, 16, 24, 24)]),
    "depthwise_conv2d_direct.x86": (lambda e, x: [conv2d(x, 16, (3, 3), groups=16)], [IMAGES]),
    "dense_packed.x86": (products, [SEQUENCES]),
    "attention.x86": (attention, [SEQUENCES] * 3),
    "RowOps": (without_anchor, [IMAGES]),
}


@pytest.fixture
def whatever_it_costs(monkeypatch):
    """The cost rules refuse convolutions and products that are small enough for a test."""
    monkeypatch.setattr(strategy, "MIN_GAIN", 1e9)


def choose_alone(monkeypatch, name):
    """Have `name` chosen wherever it can compute a convolution of 2-D images."""
    others = {"conv2d_narrow.x86", "conv2d_winograd.x86", "conv2d_winograd_parts.x86"} - {name}
    others |= {"conv2d_strassen.x86"} if name == "conv2d_direct.x86" else set()
    monkeypatch.setattr(pass_flags, "disabled_implementations", lambda: sorted(others))


@pytest.mark.parametrize("name", CASES)
def test_no_implementation_mixes_samples(name, monkeypatch, whatever_it_costs):
    emit, shapes = CASES[name]
    choose_alone(monkeypatch, name)
    library = built(network(shapes, emit))
    assert name in implementations(library)
    assert_samples_apart(library, shapes)


def test_recurrent_layers_do_not_mix_samples():
    shapes = [(3, BATCH, 8), (BATCH, 8)]

    def emit(_, inputs, state):
        return recurrent(inputs, weight(8, 8), state, cell="rnn_tanh", backward=False)

    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(emit(None, *inputs))
        builder.emit_func_output(result)
    library = built(builder.get())
    assert [kernel.operators for kernel in library.report.kernels] == [["recurrent_rnn_tanh"]]
    assert_samples_apart(library, shapes, ([1, 0], [1]))


# --- provenance --------------------------------------------------------------------------


def chosen(shapes, emit, **attrs):
    """Which implementations of Strassen's product a build would choose."""
    target = targets.parse(TARGET)
    with tvm.transform.PassContext(opt_level=3, required_pass=["Strassen"]):
        kernels = pipeline.scheduled(network(shapes, emit, **attrs), target).report.kernels
    return {kernel.implementation for kernel in kernels if kernel.algorithm == "strassen"}


def one_product(emit, x):
    return [op.matmul(x, weight(32, 32))]


@pytest.mark.parametrize(
    ("shape", "attrs", "is_paired"),
    [
        ((8, 32), {}, False),  # eight samples
        ((1, 8, 32), {}, True),  # eight tokens of one
        ((2, 8, 32), {}, False),  # batch or sequence first: nobody says
        ((8, 32), {ONE_SAMPLE: True}, True),
    ],
)
def test_rows_of_dense_layers_are_pairs_only_if_all_are_of_one_sample(
    shape, attrs, is_paired, whatever_it_costs
):
    assert bool(chosen([shape], one_product, **attrs)) == is_paired


def test_tokens_of_one_sample_stay_so_through_any_operator(whatever_it_costs):
    def windows_of_tokens(emit, x):
        split = emit(op.reshape(x, (1, 4, 2, 2, 32)))
        moved = emit(op.permute_dims(split, [0, 2, 1, 3, 4]))
        return one_product(emit, emit(op.reshape(moved, (16, 32))))

    assert chosen([(1, 16, 32)], windows_of_tokens)


def test_inputs_of_unlike_first_extents_leave_the_samples_in_doubt(whatever_it_costs):
    def state_of_a_batch(emit, state, x):
        return [*one_product(emit, state), op.nn.relu(x)]

    assert not chosen([(1, 6, 32), (6, 4)], state_of_a_batch)


def test_rows_behind_a_recurrent_layer_of_several_are_samples(whatever_it_costs):
    def one_step(emit, inputs, state):
        states = emit(
            recurrent(inputs, weight(8, 24), state, weight(8), cell="gru", backward=False)
        )
        return [op.matmul(states, weight(8, 16))]

    assert not chosen(
        [(1, 6, 24), (1, 6, 8)], lambda e, x, s: one_step(e, x, e(op.squeeze(s, [0])))
    )


def conv(emit, x):
    return [conv2d(x, 16)]


@pytest.mark.parametrize(
    ("shape", "before", "is_paired"),
    [
        ((1, 16, 5, 5), lambda e, x: x, True),
        ((2, 16, 4, 4), lambda e, x: x, True),
        ((2, 16, 5, 5), lambda e, x: x, False),  # a pair would be of two images
        ((2, 16, 4, 4), lambda e, x: e(op.nn.relu(x)), True),
        ((2, 4, 4, 16), lambda e, x: e(op.permute_dims(x, [0, 3, 1, 2])), True),
        (  # the batch is among the pixels
            (2, 16, 4, 4),
            lambda e, x: e(op.reshape(e(op.permute_dims(x, [1, 2, 0, 3])), (1, 16, 4, 8))),
            False,
        ),
        (  # images of two samples side by side
            (2, 16, 4, 4),
            lambda e, x: e(
                op.concat([e(op.strided_slice(x, [0], [i], [i + 1])) for i in (0, 1)], 3)
            ),
            False,
        ),
    ],
)
def test_pixels_of_convolutions_are_pairs_within_an_image(
    shape, before, is_paired, whatever_it_costs
):
    paired = chosen([shape], lambda emit, x: conv(emit, before(emit, x)))
    assert bool(paired) == is_paired


def test_a_batch_that_is_taken_apart_keeps_its_samples_in_order(monkeypatch, whatever_it_costs):
    monkeypatch.setattr(split_batch, "SHARE_OF_L3", 0.0)
    shape = (2, 16, 16, 16)

    def blocks(emit, x):
        x = emit(op.nn.max_pool2d(emit(op.nn.relu(emit(conv2d(x, 16)))), (2, 2), (2, 2)))
        return [conv2d(x, 32)]

    library = built(network([shape], blocks))
    assert any("SplitBatch" in note for note in library.report.notes)
    assert "conv2d_strassen.x86" in implementations(library)
    assert_samples_apart(library, [shape])


def test_functions_of_backends_know_whose_samples_they_get():
    main = network([(2, 16, 4, 4)], conv)["main"]
    builder = relax.BlockBuilder()
    callee = builder.add_func(main.without_attr("global_symbol"), "claimed")
    x = relax.Var("x", relax.TensorType((2, 16, 4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            called = builder.emit(relax.Call(callee, [x]))
            (returned,) = conv(builder.emit, builder.emit(relax.TupleGetItem(called, 0)))
            out = builder.emit_output(returned)
        builder.emit_func_output(out)
    mod = builder.get()
    known = provenance(mod)
    result = mod["claimed"].body.blocks[0].bindings[0].var
    behind = mod["main"].body.blocks[0].bindings[-1].var
    assert known.rows_share_sample(mod["main"], "main")(behind)
    assert known.rows_share_sample(mod["claimed"], "claimed")(result)
    assert not known.rows_share_sample(mod["claimed"], "another")(result)


# --- whole networks, through ONNX --------------------------------------------------------


def model(nodes, shape, out_shape, weights):
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(made)
    return made


def residual_network():
    weights = {f"w{i}": values(i, 16, 16, k, k) / 8 for i, k in enumerate((1, 3))}
    weights["fc"] = values(9, 16, 24)
    nodes, x = [], "x0"
    for i, k in enumerate((1, 3)):
        pads = [k // 2] * 4
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=pads))
        nodes.append(helper.make_node("Add", [f"c{i}", x], [f"a{i}"]))
        nodes.append(helper.make_node("Relu", [f"a{i}"], [f"r{i}"]))
        x = f"r{i}"
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "fc"], ["y"]))
    return model(nodes, (2, 16, 8, 8), (2, 24), weights)


def transformer():
    weights = {"qk": values(1, 32, 32) / 4, "v": values(2, 32, 32), "up": values(3, 32, 32)}
    node = helper.make_node
    nodes = [
        node("MatMul", ["x0", "qk"], ["q"]),
        node("MatMul", ["x0", "v"], ["v_"]),
        node("Transpose", ["q"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v_"], ["mixed"]),
        node("MatMul", ["mixed", "up"], ["u"]),
        node("Add", ["u", "x0"], ["y"]),
    ]
    return model(nodes, (2, 8, 32), (2, 8, 32), weights)


@pytest.mark.parametrize("made", [residual_network, transformer])
def test_no_network_mixes_samples(made, whatever_it_costs, monkeypatch):
    mod, params = relay.frontend.from_onnx(made())
    with tvm.transform.PassContext(opt_level=3, required_pass=["Strassen"]):
        library = relay.build(mod, TARGET, params=params)
    algorithms = {kernel.algorithm.split()[0] for kernel in library.report.kernels}
    assert algorithms == (
        {"direct", "winograd", "strassen"} if made is residual_network else {"direct"}
    )
    shape = library.metadata.inputs[0].shape
    assert_samples_apart(library, [shape])
