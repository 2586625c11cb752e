"""Parameters of unknown shape, as `hybrid_forward` gets them: `infer.tell_shapes` gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.errors import DeferredInitializationError

from ..array.ndarray import ndarray
from ..array.value import call_site

if TYPE_CHECKING:
    from ..device import Device
    from .parameter import Parameter


class Unshaped(ndarray):
    """A parameter's array on a device, before its shape is known."""

    def __init__(self, param: Parameter, device: Device) -> None:
        self.param = param
        self._device = device

    @property
    def _value(self) -> Any:  # type: ignore[override]
        """The parameter's value, once an operator has told its shape."""
        if not self.param.is_known:
            raise DeferredInitializationError(
                f"{call_site()}: the shape of parameter {self.param.name!r} is not known here; it "
                "follows from operators such as F.FullyConnected that read it. Give its shape, or "
                "define infer_shape()"
            )
        self.param.finish_deferred_init()
        return self.param.data(self._device)._value
