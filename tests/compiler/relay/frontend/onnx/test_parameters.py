from __future__ import annotations

import threading

import numpy as np
import pytest
from tvm import relax

from compiler.relay.frontend.onnx import parameters as parameters_module
from compiler.relay.frontend.onnx.parameters import Parameters


def variable(name, array):
    return relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))


def test_weights_are_copies_in_the_order_in_which_they_came():
    arrays = {name: np.full((2, 3), value, "float32") for name, value in (("b", 1), ("a", 2))}
    variables = {name: variable(name, array) for name, array in arrays.items()}
    with Parameters() as parameters:
        for name, array in arrays.items():
            parameters.copy_of(array, variables[name])
    assert list(parameters) == ["b", "a"]
    assert [each.name for each in parameters.variables()] == ["b", "a"]
    for name, array in arrays.items():
        found, value = parameters[name]
        assert found.same_as(variables[name])
        array[:] = 0
        assert value.numpy().all()


def test_reading_a_weight_waits_for_its_copy(monkeypatch):
    started, copied = threading.Event(), threading.Event()

    def copy(array):
        started.wait()
        copied.set()
        return array

    monkeypatch.setattr(parameters_module, "to_tensor", copy)
    array = np.zeros(3)
    with Parameters() as parameters:
        parameters.copy_of(array, relax.Var("w", relax.TensorType((3,), "float64")))
        assert "w" in parameters and not copied.is_set()
        started.set()
        assert parameters["w"][1] is array
        assert copied.is_set()


def test_an_error_of_a_copy_is_raised_where_its_weight_is_read(monkeypatch):
    def fail(_):
        raise MemoryError("no room")

    monkeypatch.setattr(parameters_module, "to_tensor", fail)
    with Parameters() as parameters:
        parameters.copy_of(np.zeros(3), relax.Var("w", relax.TensorType((3,), "float64")))
    with pytest.raises(MemoryError, match="no room"):
        parameters["w"]
