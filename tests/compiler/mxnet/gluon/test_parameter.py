"""Parameters: initialization, shapes, names, sharing, files."""

from __future__ import annotations

import json
import struct

import numpy as onp
import pytest

from compiler.errors import (
    BlockArgumentError,
    BlockError,
    DeferredInitializationError,
    ExportError,
    FrontendError,
)
from compiler.mxnet import cpu, initializer, np, npx
from compiler.mxnet.array import safetensors
from compiler.mxnet.gluon import Block, Constant, HybridBlock, Parameter, SymbolBlock, nn
from compiler.mxnet.symbol import load_params, save_params


class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4)
        self.norm = nn.BatchNorm()
        self.fc2 = nn.Dense(2, use_bias=False)

    def forward(self, x):
        return self.fc2(self.norm(self.fc1(x)))


@pytest.fixture
def net():
    block = Net()
    block.initialize()
    block(np.ones((1, 3)))
    return block


def test_names_are_those_of_the_attributes(net):
    assert list(net.collect_params()) == [
        "fc1.weight", "fc1.bias", "norm.gamma", "norm.beta", "norm.running_mean",
        "norm.running_var", "fc2.weight",
    ]  # fmt: skip
    assert list(net.collect_params("fc.*weight")) == ["fc1.weight", "fc2.weight"]
    assert list(net.collect_params("fc1.*|.*beta")) == ["fc1.weight", "fc1.bias", "norm.beta"]
    assert net.fc1.weight.name == "weight" and net.norm.params["beta"] is net.norm.beta


def test_unknown_extents_are_filled_in_and_known_ones_are_not_changed():
    param = Parameter("w", shape=(2, -1, 0), allow_deferred_init=True)
    assert param.shape == (2, -1, -1) and not param.is_known
    param.initialize()
    assert param.is_deferred
    with pytest.raises(DeferredInitializationError, match="no value yet"):
        param.data()
    with pytest.raises(BlockArgumentError, match="can't become"):
        param.shape = (3, 1, 1)
    param.shape = (2, 3, 4)
    param.finish_deferred_init()
    assert param.data().shape == (2, 3, 4)
    with pytest.raises(DeferredInitializationError, match="unknown shape"):
        Parameter("w", shape=(0, 2)).initialize()


def test_a_parameter_without_a_value_says_so():
    param = Parameter("w", shape=(2,))
    with pytest.raises(BlockError, match="has not been initialized"):
        param.data()
    param.initialize()
    with pytest.raises(BlockError, match=r"not on cpu\(3\)"):
        param.data(cpu(3))


def test_initial_values_come_from_the_parameter_then_from_initialize():
    own = Parameter("w", shape=(1000,), init="ones")
    other = Parameter("v", shape=(1000,))
    for param in (own, other):
        param.initialize(default_init=initializer.Normal(2.0))
    assert (own.data().asnumpy() == 1).all()
    assert 1.8 < other.data().asnumpy().std() < 2.2
    own.initialize("zeros")
    assert (own.data().asnumpy() == 1).all(), "a value is kept"
    own.initialize("zeros", force_reinit=True)
    assert (own.data().asnumpy() == 0).all()
    orthogonal = initializer.Orthogonal(1.0)("w", (4, 8), "float32")
    onp.testing.assert_allclose(orthogonal @ orthogonal.T, onp.eye(4), atol=1e-5)
    xavier = initializer.Xavier()("w", (50, 20, 3, 3), "float32")
    bound = onp.sqrt(3 / ((20 + 50) * 9 / 2))
    assert bound * 0.95 < abs(xavier).max() <= bound
    with pytest.raises(BlockArgumentError, match="unknown initializer"):
        initializer.create("onez")


def test_values_are_replaced_on_all_devices_and_moved():
    param = Parameter("w", shape=(2,))
    param.initialize(device=[cpu(0), cpu(1)])
    param.set_data(np.array([1.0, 2.0]))
    assert [each.device for each in param.list_data()] == [cpu(0), cpu(1)]
    assert all((each.asnumpy() == [1, 2]).all() for each in param.list_data())
    param.reset_ctx(cpu(2))
    assert param.list_ctx() == [cpu(2)] and param.data().tolist() == [1, 2]
    with pytest.raises(BlockArgumentError, match="can't become"):
        param.set_data(onp.ones(3))
    param.cast("float16")
    assert param.data().dtype == "float16"
    with pytest.raises(BlockArgumentError, match="dense"):
        Parameter("w", stype="row_sparse")
    with pytest.raises(BlockArgumentError, match="grad_req"):
        Parameter("w", grad_req="sometimes")


def test_a_constant_keeps_its_value():
    class Adds(HybridBlock):
        def __init__(self):
            super().__init__()
            self.k = Constant([[1, 2], [3, 4]])

        def forward(self, x):
            return x + self.k.data()

    block = Adds()
    block.initialize(initializer.Zero(), force_reinit=True)
    assert block.k.grad_req == "null"
    x = np.ones((2, 2), "int64")
    assert block(x).tolist() == [[2, 3], [4, 5]]
    block.hybridize()
    assert block(x).tolist() == [[2, 3], [4, 5]]


def test_blocks_share_parameters(net):
    other = Net().share_parameters(net.collect_params("fc1.*"))
    assert other.fc1.weight is net.fc1.weight and other.fc2.weight is not net.fc2.weight
    other.initialize()
    x = np.ones((1, 3))
    net.fc1.bias.set_data(onp.full(4, 9.0))
    onp.testing.assert_array_equal(other.fc1(x).asnumpy(), net.fc1(x).asnumpy())


@pytest.mark.parametrize("ending", ["params", "npz", "safetensors"])
def test_parameters_survive_a_file(net, tmp_path, ending):
    path = tmp_path / f"net.{ending}"
    net.save_parameters(path)
    other = Net()
    other.load_parameters(path)
    for name, param in net.collect_params().items():
        found = other.collect_params()[name]
        onp.testing.assert_array_equal(found.data().asnumpy(), param.data().asnumpy())
    x = np.ones((2, 3))
    onp.testing.assert_array_equal(other(x).asnumpy(), net(x).asnumpy())


def test_safetensors_files_are_those_of_the_format(tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = {"a": onp.arange(6, dtype="int64").reshape(2, 3), "b": onp.array(1.5, "float16")}
    safetensors.write(path, arrays)
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert header["a"] == {"dtype": "I64", "shape": [2, 3], "data_offsets": [0, 48]}
    assert raw[8 + length : 8 + length + 48] == arrays["a"].tobytes()
    found = safetensors.read(path)
    assert found["b"].dtype == "float16" and found["b"] == 1.5
    brain = onp.array([1.0, -2.5], "float32").view("uint32") >> 16
    text = json.dumps({"c": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + brain.astype("<u2").tobytes())
    assert safetensors.read(path)["c"].tolist() == [1.0, -2.5]
    for damage in (b"", raw[:20], struct.pack("<Q", 1 << 60) + raw[8:], raw[:-3],
                   struct.pack("<Q", 2) + b"[]"):  # fmt: skip
        path.write_bytes(damage)
        with pytest.raises(FrontendError):
            safetensors.read(path)
    with pytest.raises(ExportError, match="complex"):
        safetensors.write(path, {"z": onp.zeros(1, "complex64")})


def test_files_that_do_not_fit_are_errors_that_say_why(net, tmp_path):
    path = tmp_path / "net.params"
    values = {n: p.data().asnumpy() for n, p in net.collect_params().items()}

    def load(changed, **kwargs):
        save_params(path, changed)
        Net().load_parameters(path, **kwargs)

    missing = {n: v for n, v in values.items() if n != "fc1.bias"}
    with pytest.raises(BlockArgumentError, match=r"lacks the parameter 'fc1\.bias'"):
        load(missing)
    load(missing, allow_missing=True)
    extra = {**values, "more": onp.ones(1)}
    with pytest.raises(BlockArgumentError, match="'more', which is not a parameter"):
        load(extra)
    load(extra, ignore_extra=True)
    with pytest.raises(BlockArgumentError, match="shape"):
        load({**values, "fc1.bias": onp.ones(5, "float32")})
    halved = {n: v.astype("float16") for n, v in values.items()}
    with pytest.raises(BlockArgumentError, match="dtype is float16"):
        load(halved)
    load(halved, cast_dtype=True)
    save_params(path, halved)
    half = Net()
    half.load_parameters(path, cast_dtype=True, dtype_source="saved")
    assert half.fc1.weight.dtype == "float16"
    with pytest.raises(FrontendError):
        net.load_parameters(tmp_path / "nothing.params")
    save_params(path, [onp.ones(2)])
    with pytest.raises(BlockArgumentError, match="no names"):
        net.load_parameters(path)


def test_export_writes_the_files_of_mxnet(net, tmp_path):
    net.hybridize()
    x = np.ones((2, 3))
    wanted = net(x).asnumpy()
    symbol_file, param_file = net.export(tmp_path / "model", epoch=7)
    assert symbol_file.endswith("model-symbol.json") and param_file.endswith("model-0007.params")
    names = load_params(param_file)
    assert set(names) == {
        "arg:fc1.weight", "arg:fc1.bias", "arg:norm.gamma", "arg:norm.beta",
        "aux:norm.running_mean", "aux:norm.running_var", "arg:fc2.weight",
    }  # fmt: skip
    block = SymbolBlock.imports(symbol_file, "data", param_file)
    onp.testing.assert_allclose(block(x).asnumpy(), wanted, rtol=1e-6)
    assert len(repr(block).splitlines()) == 3
    with pytest.raises(BlockArgumentError, match="no input 'image'"):
        SymbolBlock.imports(symbol_file, "image", param_file)
    fresh = SymbolBlock.imports(symbol_file, "data")
    fresh.initialize(initializer.One())
    assert fresh(x).shape == (2, 2) and fresh.collect_params()["fc1.weight"].shape == (4, 3)


def test_arrays_survive_save_and_load(tmp_path):
    a, b = np.arange(3), np.ones((2, 2), "int32")
    npx.save(tmp_path / "d.params", {"a": a, "b": b})
    found = npx.load(tmp_path / "d.params")
    assert found["a"].tolist() == [0, 1, 2] and found["b"].dtype == "int32"
    npx.save(tmp_path / "l.params", [a, b])
    assert [each.shape for each in npx.load(tmp_path / "l.params")] == [(3,), (2, 2)]
    npx.savez(tmp_path / "z.npz", a, named=b)
    assert set(onp.load(tmp_path / "z.npz")) == {"arr_0", "named"}
    with pytest.raises(ExportError):
        npx.save(tmp_path / "x.params", 3)


def test_attributes_keep_their_kind():
    block = Net()
    with pytest.raises(TypeError, match="fc1"):
        block.fc1 = 3
    with pytest.raises(TypeError):
        block.fc1.weight = nn.Dense(2)
    assert isinstance(block, Block)

    class Early(HybridBlock):
        def __init__(self):
            self.fc = nn.Dense(2)

    with pytest.raises(BlockError, match="super"):
        Early()


@pytest.mark.parametrize("shape", [[True], [1] * 100, [0, 2**70], [0, 2**40, 2**40]])
def test_a_safetensors_file_with_a_shape_that_no_array_has_is_refused(tmp_path, shape):
    size = 0 if 0 in shape else 1
    entry = {"dtype": "U8", "shape": shape, "data_offsets": [0, size]}
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"x")
    with pytest.raises(FrontendError, match="array 'a'"):
        safetensors.read(path)
