"""Baton as a backend of `torch.compile`: inference on the CPU.

    compiled = torch.compile(model, backend="baton", options={"precision": "strict"})
    with torch.no_grad():
        scores = compiled(image)

Importing this package registers the backend "baton". An installed Baton is also found by its entry
point.
"""

from .backend import Options, baton

__all__ = ["Options", "baton"]
