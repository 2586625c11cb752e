"""Parameters of unknown shape, as `hybrid_forward` gets them: the operator that reads one tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compiler.errors import DeferredInitializationError, FrontendError
from compiler.mxnet.graph import VARIABLE, Entry, Graph, Node
from compiler.symbol.symbol import Symbol

from .infer import NUMPY_SEMANTICS
from .ndarray import ndarray
from .value import call_site

if TYPE_CHECKING:
    from .device import Device
    from .parameter import Parameter


class Unshaped(ndarray):
    """A parameter's array on a device, before its shape is known.

    Parameters
    ----------
    param : Parameter
    device : Device
    """

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


def tell_shapes(op: str, attrs: Mapping[str, str], inputs: Sequence[Any]) -> None:
    """Give the parameters among an operator's inputs the shapes that it takes them in.

    Raises
    ------
    DeferredInitializationError
        They do not follow from the other inputs.
    """
    unknown = {
        f"in{index}": each.param
        for index, each in enumerate(inputs)
        if isinstance(each, Unshaped) and not each.param.is_known
    }
    if not unknown:
        return
    from compiler.relay.frontend.mxnet import infer_shapes

    nodes = [Node(VARIABLE, f"in{index}") for index in range(len(inputs))]
    node = Node(op, "the operator", [Entry(index) for index in range(len(inputs))], dict(attrs))
    graph = Graph([*nodes, node], [Entry(len(nodes))], {"is_np_shape": NUMPY_SEMANTICS})
    shapes = {
        f"in{index}": each._value.shape
        for index, each in enumerate(inputs)
        if f"in{index}" not in unknown
    }
    try:
        found, _ = infer_shapes(Symbol(graph), shapes)
        for name, param in unknown.items():
            param.shape = found[name]
    except FrontendError as error:
        names = ", ".join(repr(param.name) for param in unknown.values())
        raise DeferredInitializationError(
            f"{call_site()}: the shape of {names} does not follow from operator {op}: {error}. "
            "Give its shape, or define infer_shape()"
        ) from error
