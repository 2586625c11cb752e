"""`qconfig`: settings of `quantize` inside a `with` block."""

from __future__ import annotations

import contextvars
import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import RelayError
from ...support.scoped_context import scoped_value

logger = logging.getLogger("baton.quantize")

_CHOICES: dict[str, tuple[Any, ...]] = {
    "nbit_input": tuple(range(8, 0, -1)),
    "nbit_weight": (8, 7),
    "dtype_input": ("int8",),
    "dtype_weight": ("int8",),
    "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
    "weight_scale": ("power2", "max"),
    "partition_conversions": ("disabled", "enabled", "fully_integral"),
}


@dataclasses.dataclass(frozen=True)
class QConfig:
    """Quantization settings.

    Attributes
    ----------
    nbit_input : int
        Bits of the integers that layers read, 1 to 8; fewer than 8 are kept in int8. With one bit
        all of them are zero.
    nbit_weight : int
        Weight bits; CPUs without VNNI multiply faster with 7 bits.
    calibrate_mode : str
        Source of tensor ranges: "global_scale" uses one range for all, "kl_divergence" and
        "percentile" compute them from the samples of a data set.
    global_scale : float
        Largest magnitude of every tensor.
    weight_scale : str
        Maps to the largest integer: "max" the largest weight, "power2" the next power of two.
    skip_dense_layer : bool
        Keep dense layers in float32.
    skip_conv_layers : list of int, optional
        Indices of convolutions to keep in float32, counted from 0 in evaluation order.
    do_simulation : bool
        Keep float weights, which are quantized where they are used.
    partition_conversions : str
        "enabled" has `quantize` outline the conversions at the inputs and outputs into separate
        functions (`partition`); "fully_integral" also requires integer operators between them.

    `nbit_activation`, `dtype_activation`, `round_for_shift`, `rounding` and `debug_enabled_ops`
    controlled integer scaling, which now follows ONNX. `calibrate_chunk_by` limited memory, which
    calibration no longer needs. They have no effect.
    """

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: list[int] | None = dataclasses.field(default_factory=lambda: [0])
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: list[str] | None = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"

    def __post_init__(self) -> None:
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                known = ", ".join(map(repr, accepted))
                raise RelayError(f"qconfig: {name} is {getattr(self, name)!r}; it can be {known}")
        if not 0 < self.global_scale < float("inf"):
            raise RelayError(f"qconfig: global_scale is {self.global_scale}, not a positive number")


_current: contextvars.ContextVar[QConfig | None] = contextvars.ContextVar("qconfig", default=None)


def current_qconfig() -> QConfig:
    """Return the active configuration."""
    return _current.get() or QConfig()


@contextmanager
def qconfig(**settings: Any) -> Iterator[QConfig]:
    """Configure `quantize` in a `with` block; omitted settings have their defaults.

    Raises
    ------
    RelayError
        A setting has an unsupported value. Unknown names are ignored with a warning.
    """
    known = {each.name for each in dataclasses.fields(QConfig)}
    for name in settings.keys() - known:
        logger.warning("qconfig has no setting %r; it is ignored", name)
    made = QConfig(**{name: value for name, value in settings.items() if name in known})
    with scoped_value(_current, made):
        yield made
