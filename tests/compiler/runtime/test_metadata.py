from __future__ import annotations

import json

import numpy as np
import pytest
import tvm

from compiler.errors import LoadError
from compiler.runtime.metadata import KVCacheInfo, Metadata, ParamInfo, TensorInfo


def metadata() -> Metadata:
    return Metadata(
        mod_name="net",
        inputs=(TensorInfo("x", (1, 3), "float32"), TensorInfo("n", (), "int64")),
        outputs=(TensorInfo("y", (1,), "bool", "cuda"),),
        params=(ParamInfo("p0", (5,), "float16", offset=0), ParamInfo("p1", (3,), "int8", "", 64)),
        devices=("cuda", "cpu"),
        target='{"kind": "cuda"}',
        cpu_features=("avx2", "fma"),
        report={"kernels": [{"name": "conv", "flops": 12}]},
        partition={"subgraphs": []},
        bound_params=("conv.weight",),
        tvm_version="0.27",
        baton_version="0.1",
    )


def test_json_gives_back_equal_metadata():
    assert Metadata.from_json(metadata().to_json()) == metadata()


def test_weights_are_laid_out_one_after_the_other_at_multiples_of_64_bytes():
    tensors = [
        ("p0", tvm.runtime.tensor(np.zeros((5, 5), "float32"))),
        ("p1", tvm.runtime.tensor(np.zeros(3, "int8"))),
        ("p2", tvm.runtime.empty((65,), "bfloat16")),
    ]
    laid_out = metadata().with_params(tensors)
    assert [param.offset for param in laid_out.params] == [0, 128, 192]
    assert [param.nbytes for param in laid_out.params] == [100, 3, 130]
    assert laid_out.weights_nbytes == 192 + 192


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mod_name": 3}, "mod_name"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": [{"name": "x", "shape": [-1], "dtype": "float32", "device": ""}]}, "shape"),
        ({"inputs": [{"name": "x", "shape": [1], "dtype": "float", "device": ""}]}, "dtype"),
        ({"inputs": [{"name": "x", "shape": [1], "dtype": "int8", "device": "?"}]}, "'x' is"),
        ({"inputs": [{"name": "x", "shape": [1], "dtype": "float328", "device": ""}]}, "float328"),
        ({"outputs": ["y"]}, "outputs"),
        ({"params": [{"name": "x", "shape": [1], "dtype": "int8", "device": ""}]}, "offset"),
        ({"devices": []}, "devices"),
        ({"cpu_features": [1]}, "cpu_features"),
        ({"report": None}, "report"),
        ({"format": 999}, "format 999"),
    ],
)
def test_a_wrong_field_is_named(change, named):
    document = {**json.loads(metadata().to_json()), **change}
    with pytest.raises(LoadError, match=named):
        Metadata.from_json(json.dumps(document))


def test_overlapping_weights_are_refused():
    document = json.loads(metadata().to_json())
    document["params"][0]["shape"] = [100]
    with pytest.raises(LoadError, match="overlap"):
        Metadata.from_json(json.dumps(document))


def test_two_inputs_of_one_name_are_refused():
    document = json.loads(metadata().to_json())
    document["params"][0]["name"] = "x"
    with pytest.raises(LoadError, match="one name"):
        Metadata.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_text_that_is_no_json_object_is_refused(text):
    with pytest.raises(LoadError):
        Metadata.from_json(text)


def decoder() -> Metadata:
    return Metadata(
        mod_name="decoder",
        inputs=(
            TensorInfo("ids", (1, "seq"), "int64"),
            TensorInfo("key", (1, 16, 4), "float32"),
            TensorInfo("value", (1, 4, 16), "float32"),
            TensorInfo("past", ("past",), "int8"),
        ),
        outputs=(),
        kv_cache=KVCacheInfo("past", "past", "seq", (("key", 1), ("value", 2))),
    )


def test_json_gives_back_what_is_known_of_a_cache():
    assert Metadata.from_json(decoder().to_json()) == decoder()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"symbol": "seq"}, "counts rows by the input 'past'"),
        ({"rows": "ids"}, "counts rows by the input 'ids'"),
        ({"grows_by": "n"}, "grows by 'n'"),
        ({"grows_by": -1}, "kv_cache is"),
        ({"tensors": []}, "kv_cache is"),
        ({"tensors": [["key", 1], "value"]}, "kv_cache is"),
        ({"tensors": [["ids", 1]]}, "the input 'ids', which is not a buffer"),
        ({"tensors": [["key", 3]]}, "the input 'key', which is not a buffer"),
        ({"tensors": [["key", 1], ["value", 1]]}, "different room"),
    ],
)
def test_a_cache_that_is_not_one_of_its_inputs_is_refused(change, named):
    document = json.loads(decoder().to_json())
    document["kv_cache"].update(change)
    with pytest.raises(LoadError, match=named):
        Metadata.from_json(json.dumps(document))
