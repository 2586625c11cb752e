"""Decoders with a cache: one library for the prompt and for each step, beside onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
import tvm

from compiler import relay
from compiler.errors import BuildError, InputError
from compiler.runtime import load_module
from compiler.runtime.graph_executor import GraphModule
from scripts.models import decoders

CACHE = ("past_key_0", "past_value_0")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_prompts_and_steps_of_any_past(kind: str) -> None:
    model = decoders.decoder(kind, layers=1, width=32, heads=2, positions=32, vocabulary=64)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)
    assert "attention" in [kernel.name for kernel in library.report.kernels]
    module = GraphModule(library["default"](tvm.cpu()))
    assert module.get_output_info()[0]["key_0"] == (1, 2, "past + seq", 16)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(0)
    state = {name: np.zeros((1, 2, 0, 16), "float32") for name in CACHE}
    own = {name: tvm.runtime.tensor(value) for name, value in state.items()}
    for count in (5, 1, 3, 2, 7, 1, 1):
        ids = random.integers(0, 64, (1, count))
        expected = session.run(None, {"ids": ids, **state})
        for name, value in own.items():
            module.set_input_zero_copy(name, value)
        module.run(ids=ids)
        for index, each in enumerate(expected):
            got = module.get_output(index).numpy()
            np.testing.assert_allclose(got, each, rtol=1e-4, atol=1e-4)
        state = dict(zip(CACHE, expected[1:], strict=True))
        own = {name: module.get_output(index + 1) for index, name in enumerate(CACHE)}


def built_with_cache(room: int, kind: str = "gpt2", opt_level: int = 3):
    model = decoders.decoder(kind, layers=1, width=32, heads=2, positions=32, vocabulary=64)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(relay.with_kv_cache(mod, "past", room), "llvm", params=params)
    return model, library


@pytest.fixture(scope="module")
def cached():
    return built_with_cache(16)


def without_cache(model, ids: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    empty = {name: np.zeros((1, 2, 0, 16), "float32") for name in CACHE}
    return session.run(None, {"ids": ids, **empty})


def close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


IDS = np.random.default_rng(3).integers(0, 64, (1, 16))


def check_steps(model, module: GraphModule) -> None:
    cache = module.make_kv_cache()
    module.use_kv_cache(cache)
    for begin, end in itertools.pairwise((0, 5, 6, 9, 15, 16)):
        module.run(ids=IDS[:, begin:end])
        expected = without_cache(model, IDS[:, :end])
        close(module.get_output(0).numpy(), expected[0][:, begin:])
        assert cache.length == end
        for name, each in zip(CACHE, expected[1:], strict=True):
            close(cache[name], each)


def test_a_cache_in_place_gives_the_same_as_the_whole_text(cached):
    model, library = cached
    assert [info.name for info in library.metadata.outputs] == ["logits"]
    check_steps(model, GraphModule(library["default"](tvm.cpu())))


@pytest.mark.parametrize(("kind", "opt_level"), [("llama", 3), ("gpt2", 2)])
def test_so_do_other_decoders_and_attention_of_several_kernels(kind, opt_level):
    model, library = built_with_cache(16, kind, opt_level)
    check_steps(model, GraphModule(library["default"](tvm.cpu())))


def test_a_cache_that_is_full_says_so_and_stays_as_it_is(cached):
    model, library = cached
    module = GraphModule(library["default"](tvm.cpu()))
    cache = module.make_kv_cache()
    module.use_kv_cache(cache)
    module.run(ids=IDS[:, :15])
    rows = "'past_key_0' has room for 16 rows, 'past', along axis 2; 15 are there, and 2 more"
    with pytest.raises(InputError, match=rows):
        module.run(ids=IDS[:, :2])
    assert cache.length == 15
    module.run(ids=IDS[:, 15:])
    close(module.get_output(0).numpy(), without_cache(model, IDS)[0][:, 15:])


def test_rows_beyond_the_room_are_refused_by_the_library_itself(cached):
    _, library = cached
    module = GraphModule(library["default"](tvm.cpu()))
    for name in CACHE:
        module.set_input(name, np.zeros((1, 2, 16, 16), "float32"))
    module.set_input("past", np.zeros(15, "int8"))
    with pytest.raises(InputError, match="15 are there, and 2 more came"):
        module.run(ids=IDS[:, :2])


def test_texts_go_on_from_copies_and_from_shorter_caches(cached):
    model, library = cached
    session = library.session(parallel=2)
    cache = session.make_kv_cache()
    session.run({"ids": IDS[:, :7]}, kv_cache=cache)
    first_rows = cache["past_key_0"]
    before = first_rows.copy()
    other = cache.copy()
    other.truncate(4)
    one = session.run_async({"ids": IDS[:, 7:9]}, kv_cache=cache)
    two = session.run_async({"ids": IDS[:, 9:12]}, kv_cache=other)
    close(one.result()["logits"], without_cache(model, IDS[:, :9])[0][:, 7:])
    joined = np.concatenate([IDS[:, :4], IDS[:, 9:12]], 1)
    close(two.result()["logits"], without_cache(model, joined)[0][:, 4:])
    assert (first_rows == before).all() and (cache.length, other.length) == (9, 7)


def test_what_does_not_fit_a_cache_is_refused(cached):
    _, library = cached
    session = library.session()
    assert [info.name for info in session.inputs] == ["ids"]
    with pytest.raises(InputError, match="give kv_cache"):
        session.run({"ids": IDS})
    cache = session.make_kv_cache()
    with pytest.raises(InputError, match="it has past_key_0, past_value_0"):
        cache["past_key_1"]
    with pytest.raises(InputError, match="has 0 rows, so it can't keep 1"):
        cache.truncate(1)
    with pytest.raises(InputError, match="at least 0"):
        cache.truncate(-1)
    with pytest.raises(ValueError, match="read-only"):
        cache["past_key_0"][...] = 1
    module = GraphModule(library["default"](tvm.cpu()))
    module.use_kv_cache(cache)
    with pytest.raises(InputError, match="belongs to the cache"):
        module.set_input("past_key_0", np.zeros((1, 2, 16, 16), "float32"))


def test_an_exported_library_keeps_its_cache(cached, tmp_path):
    model, library = cached
    library.export_library(tmp_path / "decoder.so")
    session = load_module(tmp_path / "decoder.so").session()
    cache = session.make_kv_cache()
    for ids in (IDS[:, :3], IDS[:, 3:4]):
        result = session.run({"ids": ids}, kv_cache=cache)
    close(result["logits"], without_cache(model, IDS[:, :4])[0][:, 3:])


def test_models_without_such_a_cache_are_refused():
    x = relay.var("x", shape=("past", 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    with pytest.raises(BuildError, match="no cache along 'past'"):
        relay.build(relay.with_kv_cache(mod, "past", 8), "llvm")
    with pytest.raises(BuildError, match="no symbolic extent 'seq'"):
        relay.with_kv_cache(mod, "seq", 8)
    library = relay.build(mod, "llvm")
    with pytest.raises(InputError, match="--kv-cache SYMBOL=ROOM"):
        library.session().make_kv_cache()
