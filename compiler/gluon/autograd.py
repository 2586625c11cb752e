"""`mx.autograd` for code that also trains: what inference needs of it works, the rest is refused.

`pause()` and `predict_mode()` are contexts without effect; nothing is ever recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from compiler.errors import OutOfScopeError

from .value import call_site


def no_gradients(what: str) -> OutOfScopeError:
    """The error that something of training is asked for."""
    return OutOfScopeError(
        f"{call_site()}: {what}: Baton computes inference only; there are no gradients. Train with "
        "another framework and load the parameters here"
    )


@contextmanager
def pause(train_mode: bool = False) -> Iterator[None]:
    """A context without effect; raises OutOfScopeError if it is to be in training mode."""
    if train_mode:
        raise no_gradients("autograd.pause(train_mode=True)")
    yield


def predict_mode() -> Any:
    """A context without effect: this is the only mode."""
    return pause()


def is_recording() -> bool:
    """False."""
    return False


is_training = is_recording


def _refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise no_gradients(name)

    refuse.__name__ = name.rpartition(".")[2]
    refuse.__doc__ = "Raise OutOfScopeError: it belongs to training."
    return refuse


record, train_mode = _refused("autograd.record()"), _refused("autograd.train_mode()")
set_recording, set_training = (
    _refused("autograd.set_recording()"),
    _refused("autograd.set_training()"),
)
mark_variables, get_symbol = (
    _refused("autograd.mark_variables()"),
    _refused("autograd.get_symbol()"),
)


class _Losses:
    """`gluon.loss`: whatever is made of it is refused."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _refused(f"gluon.loss.{name}")


loss = _Losses()
backward, grad = _refused("autograd.backward()"), _refused("autograd.grad()")
Function, Trainer = _refused("autograd.Function"), _refused("gluon.Trainer")
