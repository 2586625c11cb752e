"""Where tensors lie in the one storage that they share, and that the numbers stay the same."""

import random

import numpy as np
import onnx
import pytest
import tvm

from compiler import relay
from compiler.lowering.codegen import memory_planner
from compiler.lowering.codegen.memory_planner import Lifetime, live_bytes, pack
from compiler.runtime import load_module

from .test_concat_in_place import TARGET, Network, all_before, check, check_debugger, halves


def overlaps(lifetimes, offsets):
    """Pairs of tensors that have a byte in common at some time."""
    return [
        (i, j)
        for i, a in enumerate(lifetimes)
        for j, b in enumerate(lifetimes[:i])
        if a.meets(b) and offsets[i] < offsets[j] + b.nbytes and offsets[j] < offsets[i] + a.nbytes
    ]


def test_a_chain_of_uneven_tensors_takes_what_its_largest_neighbors_take():
    sizes = [6400, 2560, 2560, 6400]
    lifetimes = [Lifetime(step, step + 1, size) for step, size in enumerate(sizes)]
    offsets, nbytes = pack(lifetimes)
    assert nbytes == live_bytes(lifetimes) == 6400 + 2560
    assert not overlaps(lifetimes, offsets)


def test_a_tensor_fills_the_gap_between_those_that_live_on():
    lifetimes = [Lifetime(0, 9, 640), Lifetime(0, 1, 320), Lifetime(0, 9, 640), Lifetime(2, 9, 300)]
    offsets, nbytes = pack(lifetimes)
    assert nbytes == 640 + 320 + 640
    assert not overlaps(lifetimes, offsets)


@pytest.mark.parametrize("seed", range(30))
def test_tensors_that_live_at_the_same_time_never_overlap(seed):
    chance = random.Random(seed)
    lifetimes = []
    for _ in range(chance.randint(1, 60)):
        first = chance.randrange(50)
        last = first + chance.choice((0, 1, 1, 2, 20))
        lifetimes.append(Lifetime(first, last, chance.randint(1, 5000)))
    offsets, nbytes = pack(lifetimes)
    assert not overlaps(lifetimes, offsets)
    assert all(offset % 64 == 0 for offset in offsets)
    ends = [offset + each.nbytes for offset, each in zip(offsets, lifetimes, strict=True)]
    assert max(ends) <= nbytes
    assert live_bytes(lifetimes) <= nbytes <= 1.3 * live_bytes(lifetimes)


def uneven(net):
    """Of 256, 64, 64 and 256 KB: two storages that are reused would be of 256 KB each."""
    x = net.input
    for channels in (64, 16, 16, 64, 8):
        x = net.conv(x, channels)
    return [x]


def concatenated(net):
    """Views of a tensor that does not begin where its storage does."""
    x = net.conv(net.conv(net.input, 64), 16)
    return [net.conv(net.conv(part, 32), 16) for part in (*all_before(net), *halves(net), x)]


def build(net, describe, **context):
    with tvm.transform.PassContext(opt_level=3, **context):
        return relay.build(net.module(describe), TARGET)


def main_code(library):
    text = library._executable.as_text()
    return text[text.index("@main:") :].split("\n\n")[0]


def test_intermediate_tensors_share_one_storage_that_is_smaller():
    net = Network(size=32)
    apart = build(Network(size=32), uneven, disabled_pass=["PackStorage"])
    library = build(net, uneven)
    result = 4 * 8 * 32 * 32
    assert apart.report.activations_bytes == 2 * 4 * 64 * 32 * 32 + result
    assert library.report.activations_bytes == 4 * (64 + 16) * 32 * 32 + result
    assert main_code(library).count("alloc_storage") == 2  # one of them for the result
    assert f"activations: {library.report.activations_bytes / 1e6:.2f} MB" in str(library.report)
    check(library, net)


def test_storages_stay_where_one_would_save_little():
    net = Network(size=16)
    library = build(net, uneven)
    assert "baton_move_view_pointer" not in main_code(library)
    assert library.report.activations_bytes == 2 * 4 * 64 * 16 * 16 + 4 * 8 * 16 * 16
    check(library, net)


@pytest.fixture
def whatever_it_saves(monkeypatch):
    monkeypatch.setattr(memory_planner, "LEAST_SAVED_BYTES", -(1 << 30))


@pytest.mark.usefixtures("whatever_it_saves")
@pytest.mark.parametrize("describe", [uneven, concatenated, all_before, halves])
def test_the_results_are_the_same_again_and_again(describe, tmp_path):
    net = Network()
    library = build(net, describe)
    assert "baton_move_view_pointer" in main_code(library)
    check(library, net)
    library.export_library(tmp_path / "lib.so")
    check(load_module(tmp_path / "lib.so"), net)


@pytest.mark.usefixtures("whatever_it_saves")
def test_tensors_that_are_kept_between_calls_are_moved_once():
    net = Network()
    entry = build(net, concatenated, required_pass=["StaticAllocation"]).entry(tvm.cpu())
    for _ in range(3):
        for out, expected in zip(entry(tvm.runtime.tensor(net.data)), net.expected, strict=True):
            assert np.abs(out.numpy() - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.usefixtures("whatever_it_saves")
@pytest.mark.parametrize("describe", [uneven, concatenated])
def test_the_debugger_knows_what_each_kernel_wrote(describe):
    net = Network()
    library = build(net, describe)
    check_debugger(library, net)


def test_a_tensor_whose_extent_only_running_tells_has_a_storage_of_its_own():
    nodes = [
        onnx.helper.make_node("NonZero", ["x"], ["i"]),
        onnx.helper.make_node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Transpose", ["f"], ["t"]),
        onnx.helper.make_node("MatMul", ["f", "t"], ["y"]),
    ]
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [4, 5]), ("y", None))
    ]
    graph = onnx.helper.make_graph(nodes, "found", infos[:1], infos[1:])
    opsets = [onnx.helper.make_opsetid("", 17)]
    mod, params = relay.frontend.from_onnx(onnx.helper.make_model(graph, opset_imports=opsets))
    library = relay.build(mod, TARGET, params=params)
    assert library.report.unknown_activations > 0
    result, places, count = 2 * 2 * 4, 4 * 5 * 8, 8
    assert library.report.activations_bytes == result + places + count
    assert "known only at run time" in str(library.report)
    data = np.eye(4, 5, dtype="float32")
    executor = library["default"](tvm.cpu())
    executor.set_input("x", data)
    executor.run()
    places = np.array(np.nonzero(data), "float64")
    np.testing.assert_array_equal(executor.get_output(0).numpy(), places @ places.T)
