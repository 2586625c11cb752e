"""`mx.autograd` for inference: `pause()` and `predict_mode()` do nothing, other calls raise."""

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


def training_only(name: str) -> Any:
    """Make a function that raises OutOfScopeError: it belongs to training."""

    def reject(*_: Any, **__: Any) -> NoReturn:
        raise no_gradients(name)

    reject.__name__ = name.rpartition(".")[2]
    reject.__doc__ = "Raise OutOfScopeError: it belongs to training."
    return reject


record, train_mode = training_only("autograd.record()"), training_only("autograd.train_mode()")
set_recording, set_training = (
    training_only("autograd.set_recording()"),
    training_only("autograd.set_training()"),
)
mark_variables, get_symbol = (
    training_only("autograd.mark_variables()"),
    training_only("autograd.get_symbol()"),
)


class _Losses:
    """`gluon.loss`: creating any loss raises OutOfScopeError."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return training_only(f"gluon.loss.{name}")


loss = _Losses()
backward, grad = training_only("autograd.backward()"), training_only("autograd.grad()")
Function, Trainer = training_only("autograd.Function"), training_only("gluon.Trainer")
