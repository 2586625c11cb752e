"""`autotvm.env`: what scripts set for the whole process."""

from __future__ import annotations


class AutotvmGlobalScope:
    """Settings of the process. `silent`: whether progress bars print nothing."""

    def __init__(self) -> None:
        self.silent = False


GLOBAL_SCOPE = AutotvmGlobalScope()
