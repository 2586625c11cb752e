"""The registry of Relay operators: names, calls as text and JSON write them, errors."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tvm import relax

from compiler.errors import RelayTypeError, UnsupportedRelayOperatorError
from compiler.relay.op import registry
from compiler.relay.ty import TensorType

ROOT = Path(__file__).parents[4]


def _var(name: str, *shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, TensorType(shape, dtype))


def test_an_unknown_operator_is_named_and_is_a_not_implemented_error():
    with pytest.raises(NotImplementedError, match=r"nn\.conv7d"):
        registry.call("nn.conv7d", [])


def test_an_operator_that_does_not_apply_says_why():
    with pytest.raises(UnsupportedRelayOperatorError, match=r"vm\.shape_of.*Relay's compiler"):
        registry.call("vm.shape_of", [_var("x", 2)])


def test_an_unknown_attribute_names_operator_and_attribute():
    with pytest.raises(RelayTypeError, match=r"nn\.softmax has no attribute 'ax'"):
        registry.call("nn.softmax", [_var("x", 2, 3)], {"ax": 1})


def test_a_missing_attribute_without_default_is_named():
    with pytest.raises(RelayTypeError, match="cast needs the attribute 'dtype'"):
        registry.call("cast", [_var("x", 2)])


def test_too_many_operands_are_refused():
    with pytest.raises(RelayTypeError, match="takes 1 operands"):
        registry.call("exp", [_var("x", 2), _var("y", 2)])


def test_attributes_that_are_missing_have_the_defaults_of_old_modules_not_of_python():
    call = registry.call("nn.leaky_relu", [_var("x", 2)])
    assert float(call.attrs.alpha) == 0.25


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "words"),
    [
        ("add", [(2, 3), (4,)], {}, r"rhs.*\(4\).*\(2, 3\)"),
        ("nn.dense", [(2, 3), (5, 4)], {}, r"weight.*\(5, 4\).*\(2, 3\)"),
        ("nn.conv2d", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, r"weight.*\(4, 2, 3, 3\).*\(1, 3, 8, 8\)"),
        ("nn.bias_add", [(2, 3), (4,)], {}, r"bias.*\(4\).*\(2, 3\)"),
        (
            "nn.batch_matmul",
            [(2, 3, 4), (2, 3, 5)],
            {"transpose_b": True},
            r"tensor_b.*\(2, 3, 5\)",
        ),
        ("reshape", [(2, 3)], {"newshape": [4, 2]}, r"data.*\(2, 3\)"),
        ("squeeze", [(2, 1)], {"axis": [0]}, r"data.*\(2, 1\)"),
    ],
)
def test_shapes_that_do_not_fit_name_operator_argument_and_types(name, shapes, attrs, words):
    operands = [_var(f"x{i}", *shape) for i, shape in enumerate(shapes)]
    with pytest.raises(RelayTypeError, match=f"Relay operator {name}.*{words}"):
        registry.call(name, operands, attrs)


def test_dtypes_that_differ_name_both():
    with pytest.raises(RelayTypeError, match=r"float32.*int32|int32.*float32"):
        registry.call("multiply", [_var("x", 2), _var("y", 2, dtype="int32")])


def test_fields_of_a_concatenation_that_differ_are_numbered():
    fields = relax.Tuple([_var("x", 2, 3), _var("y", 2, 4)])
    with pytest.raises(RelayTypeError, match="field 1"):
        registry.call("concatenate", [fields], {"axis": 0})


def test_every_operator_has_a_description_and_a_signature():
    for name in registry.names():
        found = registry.lookup(name)
        assert inspect.getdoc(found.function), name
        if not found.why_not:
            parameters = inspect.signature(found.function).parameters
            assert set(found.operands) <= set(parameters), name


@pytest.mark.parametrize("family", ["", "nn", "vision", "qnn"])
def test_every_builder_is_an_attribute_of_its_family(family):
    package = importlib.import_module(f"compiler.relay.op.{family}".rstrip("."))
    named = [name for name in dir(package) if not inspect.ismodule(getattr(package, name))]
    assert len(named) > 8 and all(callable(getattr(package, name)) for name in named)


def test_builders_are_attributes_of_relay_itself():
    from compiler import relay

    assert relay.add is relay.op.add and relay.nn.conv2d is relay.op.nn.conv2d
    with pytest.raises(AttributeError, match=r"relay\.conv7d"):
        relay.conv7d  # noqa: B018


def test_the_table_of_operators_is_up_to_date():
    done = subprocess.run(
        [sys.executable, "-m", "scripts.reports.relay_operators", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_importing_relay_loads_neither_tvm_nor_operators():
    code = "import sys, compiler.relay; print('tvm' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "False"
