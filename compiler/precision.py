"""`PassContext(config={"baton.precision": "bf16"})`: what a build may round, and to what.

TVM's PassContext takes only keys that C++ code has registered; `compiler.PassContext` takes this
one as well, and keeps it as the passes that are disabled and required by it. Contexts that are made
from others, and the keys of caches, copy those anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import BuildError

KEY = "baton.precision"
DEFAULT, STRICT, FAST = "default", "strict", "fast"
WINOGRAD, STRASSEN, ROUND_ROWS = "Winograd", "Strassen", "RoundRows"
INTEGERS, BFLOAT16_PRODUCTS = "ComputeOnIntegers", "BFloat16Products"
TO_BFLOAT16, TO_FLOAT16, TO_TF32 = "ToBFloat16", "ToFloat16", "ToTF32"


class _Passes(NamedTuple):
    """PassContext changes of a precision; passes required only by it never run otherwise."""

    disabled: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


PRECISIONS = {
    STRICT: _Passes(disabled=(WINOGRAD, STRASSEN, ROUND_ROWS)),
    FAST: _Passes(required=(STRASSEN,)),
    "f32": _Passes(disabled=(INTEGERS, BFLOAT16_PRODUCTS, ROUND_ROWS)),
    "bf16": _Passes(required=(TO_BFLOAT16,)),
    "f16": _Passes(required=(TO_FLOAT16,)),
    "tf32": _Passes(required=(TO_TF32,)),
    DEFAULT: _Passes(),
}
"""Precisions by name:

* "strict": without the Winograd and Strassen algorithms;
* "fast": with Strassen matmuls, whose errors follow the largest value of two neighboring rows;
* "f32": float32 matmuls also in networks of bytes and of bfloat16;
* "bf16": products rounded to bfloat16 and summed in float32, where the CPU has instructions for it;
* "f16": weights of products that wait for memory rounded to float16;
* "tf32": products of float32 on tensor cores, which keep 10 bits of the factors and sum in float32.
"""

INT8 = "int8"
"""Precision that a model is calibrated for with samples, before it is built."""


def check(precision: object) -> None:
    """Raise for what is not a precision.

    Raises
    ------
    BuildError
        With the names of those there are.
    """
    if precision == INT8:
        raise BuildError(
            f"{KEY} can't be 'int8': a model of floats needs samples to be quantized; see "
            "`baton compile --precision int8 --data FOLDER`, `baton quantize` and relay.quantize. "
            "One that is quantized already is computed on integers by default"
        )
    if precision not in PRECISIONS:
        known = ", ".join(map(repr, sorted(PRECISIONS)))
        raise BuildError(f"{KEY} is {precision!r}; it can be {known}")


def of_context(context: Any) -> str:
    """The precision of a context that disables and requires these passes."""
    disabled, required = (
        {str(name) for name in names} for names in (context.disabled_pass, context.required_pass)
    )
    return next(
        name
        for name, passes in PRECISIONS.items()
        if set(passes.disabled) <= disabled and set(passes.required) <= required
    )


def to_tvm_arguments(
    required_pass: Sequence[str] | None,
    disabled_pass: Sequence[str] | None,
    config: Mapping[str, Any] | None,
) -> tuple[Sequence[str] | None, Sequence[str] | None, Mapping[str, Any] | None]:
    """The arguments of the same names for TVM's own PassContext, which knows no precision."""
    if not config or KEY not in config:
        return required_pass, disabled_pass, config
    check(config[KEY])
    passes = PRECISIONS[config[KEY]]
    others = {key: value for key, value in config.items() if key != KEY}
    required = [*(required_pass or ()), *passes.required]
    return required, [*(disabled_pass or ()), *passes.disabled], others
