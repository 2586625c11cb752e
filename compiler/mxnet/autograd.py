"""`mx.autograd`: the contexts that inference code uses; everything else raises.

`pause()` and `predict_mode()` are contexts without effect; nothing is ever recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .array.value import no_gradients


@contextmanager
def pause(train_mode: bool = False) -> Iterator[None]:
    """Open a context that changes nothing; raise OutOfScopeError in training mode."""
    if train_mode:
        raise no_gradients("autograd.pause(train_mode=True)")
    yield


def predict_mode() -> Any:
    """Open a context that changes nothing: inference is the only mode."""
    return pause()


def is_recording() -> bool:
    """Return False."""
    return False


is_training = is_recording


def refused(name: str) -> Any:
    """Make a function that raises OutOfScopeError: it belongs to training."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise no_gradients(name)

    refuse.__name__ = name.rpartition(".")[2]
    refuse.__doc__ = "Raise OutOfScopeError: it belongs to training."
    return refuse


record, train_mode = refused("autograd.record()"), refused("autograd.train_mode()")
set_recording, set_training = (
    refused("autograd.set_recording()"),
    refused("autograd.set_training()"),
)
mark_variables, get_symbol = (
    refused("autograd.mark_variables()"),
    refused("autograd.get_symbol()"),
)


class _Losses:
    """`gluon.loss`: creating any loss raises OutOfScopeError."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return refused(f"gluon.loss.{name}")


loss = _Losses()
backward, grad = refused("autograd.backward()"), refused("autograd.grad()")
Function, Trainer = refused("autograd.Function"), refused("gluon.Trainer")
