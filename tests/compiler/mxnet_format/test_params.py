"""Parameter files: every format MXNet ever wrote, bit for bit."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from compiler.errors import ExportError, FrontendError
from compiler.mxnet.symbol import load_params, save_params
from compiler.mxnet_format.params import SparseArray

FILES = ["v0", "v1", "v2", "v2_dtypes", "v2_list", "v2_sparse", "v3", "20_npz"]


@pytest.mark.parametrize("which", FILES)
def test_arrays_equal_what_mxnet_loads(which, oracle):
    arrays = load_params(oracle / f"params_{which}.params")
    named = arrays if isinstance(arrays, dict) else {str(i): a for i, a in enumerate(arrays)}
    prefix = "v2" if which == "20_npz" else which
    with np.load(oracle / "params_expected.npz") as values:
        expected = {k.split("|")[1]: values[k] for k in values if k.split("|")[0] == prefix}
    assert sorted(named) == sorted(expected)
    for name, value in expected.items():
        assert named[name].dtype == value.dtype
        np.testing.assert_array_equal(named[name], value, strict=True)


@pytest.mark.parametrize("format", ["list", "npz"])
def test_arrays_come_back_as_they_were_saved(format, tmp_path):
    arrays = {
        "arg:w": np.arange(6, dtype="float32").reshape(2, 3),
        "arg:half": np.float16([1.5, -2]),
        "arg:scalar": np.array(3.0, "float64"),
        "aux:none": np.zeros((0, 4), "int64"),
        "arg:flags": np.array([True, False]),
        "arg:view": np.arange(12, dtype="int32").reshape(3, 4).T,
        "arg:größe": np.uint8([255]),
    }
    save_params(tmp_path / "p.params", arrays, format)
    loaded = load_params(tmp_path / "p.params")
    assert list(loaded) == list(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(loaded[name], value, strict=True)


@pytest.mark.parametrize("which", ["v2", "v2_dtypes", "v2_list"])
def test_a_file_is_written_byte_for_byte_as_mxnet_writes_it(which, oracle, tmp_path):
    original = oracle / f"params_{which}.params"
    save_params(tmp_path / "p.params", load_params(original))
    assert (tmp_path / "p.params").read_bytes() == original.read_bytes()


def test_bfloat16_comes_as_float32():
    bits = (np.float32([1.5, -0.25]).view("uint32") >> 16).astype("uint16")
    record = struct.pack("<Iiiqiii", 0xF993FAC9, 0, 1, 2, 1, 0, 12) + bits.tobytes()
    data = struct.pack("<QQQ", 0x112, 0, 1) + record + struct.pack("<Q", 0)
    np.testing.assert_array_equal(load_params(data)[0], np.float32([1.5, -0.25]), strict=True)


@pytest.mark.parametrize("which", FILES)
def test_a_truncated_file_is_refused_wherever_it_ends(which, oracle):
    data = (oracle / f"params_{which}.params").read_bytes()
    for size in range(len(data)):
        with pytest.raises(FrontendError):
            load_params(data[:size])


def test_a_claim_of_many_arrays_or_elements_allocates_nothing():
    with pytest.raises(FrontendError, match="claims to hold"):
        load_params(struct.pack("<QQQ", 0x112, 0, 2**60))
    huge = struct.pack("<Iiiqqiii", 0xF993FAC9, 0, 2, 2**40, 2**40, 1, 0, 0)
    with pytest.raises(FrontendError, match="ends before"):
        load_params(struct.pack("<QQQ", 0x112, 0, 1) + huge)


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / "p.npz", x=np.array([{}], object))
    with pytest.raises(FrontendError):
        load_params(tmp_path / "p.npz")


def test_unknown_formats_and_dtypes_are_refused(tmp_path):
    with pytest.raises(ExportError, match="'list' or 'npz'"):
        save_params(tmp_path / "p", {}, "zip")
    with pytest.raises(ExportError, match="complex64"):
        save_params(tmp_path / "p", {"x": np.zeros(2, "complex64")})
    assert not (tmp_path / "p").exists()


def test_a_sparse_array_that_is_dense_beyond_all_proportion_is_refused():
    value, index = np.ones((1, 1 << 20), "float32"), np.zeros(1, "int64")
    assert SparseArray("row_sparse", (8, 1 << 20), value, index).dense().sum() == 1 << 20
    with pytest.raises(FrontendError, match="would take"):
        SparseArray("row_sparse", (1 << 22, 1 << 20), value, index).dense()
