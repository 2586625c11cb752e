"""`qconfig`: how `quantize` works on what is inside of a `with`."""

from __future__ import annotations

import contextvars
import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import RelayError

logger = logging.getLogger("baton.quantize")

_CHOICES: dict[str, tuple[Any, ...]] = {
    "nbit_input": (8,),
    "nbit_weight": (8, 7),
    "dtype_input": ("int8",),
    "dtype_weight": ("int8",),
    "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
    "weight_scale": ("power2", "max"),
    "partition_conversions": ("disabled", "enabled", "fully_integral"),
}


@dataclasses.dataclass(frozen=True)
class QConfig:
    """What Relay's scripts can say about quantization.

    Attributes
    ----------
    nbit_weight : int
        Of weights; CPUs without VNNI multiply by 7 bits faster.
    calibrate_mode : str
        Where the ranges of tensors come from: "global_scale" for all, or samples of a data set with
        "kl_divergence" or "percentile".
    global_scale : float
        The largest number of every tensor.
    weight_scale : str
        "max" has the largest weight as the largest integer, "power2" the next power of two.
    skip_dense_layer : bool
        Whether dense layers stay in float32.
    skip_conv_layers : list of int, optional
        Which convolutions do, counted from 0 in the order of computation.
    do_simulation : bool
        Whether weights stay floats that are quantized where they are read.
    partition_conversions : str
        "enabled" has `quantize` make functions of their own of the conversions in front of the
        network and behind it (`partition`); with "fully_integral" all between them must be
        integers.

    `nbit_activation`, `dtype_activation`, `round_for_shift`, `rounding` and `debug_enabled_ops`
    said how integers were scaled, which now is done as ONNX says; `calibrate_chunk_by` saved
    memory, of which samples need none. They have no effect.
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
    """The configuration that is active."""
    return _current.get() or QConfig()


@contextmanager
def qconfig(**settings: Any) -> Iterator[QConfig]:
    """Have `quantize` work by these settings; the others have their defaults.

    Raises
    ------
    RelayError
        A setting has a value that is not supported; unknown names are warned of and ignored.
    """
    known = {each.name for each in dataclasses.fields(QConfig)}
    for name in settings.keys() - known:
        logger.warning("qconfig has no setting %r; it is ignored", name)
    made = QConfig(**{name: value for name, value in settings.items() if name in known})
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)
