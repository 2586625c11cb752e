"""Builders of Relay calls with Relax expansions, by family; `relay.op.X` has that of `relay.X`."""

from __future__ import annotations

from typing import Any

from ...support.lazy_import import lazy_attributes

FAMILIES = ("nn", "image", "vision", "random", "annotation")
"""Operator families under `relay`: `relay.nn.conv2d`."""

_FILES = ("algorithm", "reduce", "tensor", "transform")  # TVM's homes of `relay.X` operators

_REGISTRATION = (
    *("OpPattern", "OpStrategy", "register", "register_alter_op_layout", "register_compute"),
    *("register_convert_op_layout", "register_injective_schedule", "register_schedule"),
    *("register_shape_func", "register_strategy"),
    *("register_external_compiler", "register_fake_quantization_to_integer", "register_gradient"),
    *("register_infer_correct_layout", "register_legalize", "register_mixed_precision_conversion"),
    *("register_optional_fake_quantization_to_integer", "register_pattern", "register_stateful"),
)


def __dir__() -> list[Any]:
    return sorted([*_builders()[1](), *FAMILIES, "get"])


def _builders() -> Any:
    from .registry import builders_of

    return builders_of("")


__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".{name}" for name in (*FAMILIES, *_FILES, "contrib")},
        **dict.fromkeys(_REGISTRATION, ".op"),
        "const": "..expr",
        "get": ".registry",
        "op": ".op",
        "registry": ".registry",
    },
    others=lambda name: _builders()[0](name),
)
