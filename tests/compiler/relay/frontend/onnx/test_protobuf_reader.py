"""Tests of reading serialized models without copying their weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from compiler.relay.frontend.onnx.protobuf_reader import KEEP_BYTES, WireError, split_weights


def model_with(sizes: list[int]) -> onnx.ModelProto:
    weights = [
        onnx.numpy_helper.from_array(np.full(size, i, "uint8"), f"w{i}")
        for i, size in enumerate(sizes)
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [], weights)
    return helper.make_model(graph, producer_name="test")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3 * KEEP_BYTES), max_size=6))
def test_the_small_model_and_the_weights_make_up_the_whole(sizes):
    whole = model_with(sizes)
    data = whole.SerializeToString()
    small, weights = split_weights(memoryview(data))
    model = onnx.ModelProto.FromString(small)
    assert set(weights) == {f"w{i}" for i, size in enumerate(sizes) if size > KEEP_BYTES}
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            assert not tensor.HasField("raw_data")
            tensor.raw_data = bytes(weights[tensor.name])
    assert model == whole


def test_the_weights_are_views_of_the_given_bytes():
    data = model_with([4096]).SerializeToString()
    _, weights = split_weights(memoryview(data))
    assert weights["w0"].obj is data


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_split_or_refused(data):
    try:
        small, weights = split_weights(memoryview(data))
    except WireError:
        return
    assert len(small) <= len(data) + 20
    assert not weights or len(data) > KEEP_BYTES


@pytest.mark.parametrize("cut", [1, 10, 2000, 4000])
def test_a_truncated_message_is_refused(cut):
    data = model_with([2048, 2048]).SerializeToString()
    with pytest.raises(WireError, match="byte"):
        split_weights(memoryview(data[:-cut]))
