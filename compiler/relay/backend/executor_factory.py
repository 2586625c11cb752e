"""`relay.backend.executor_factory`: what `relay.build` returns, under its old names."""

from __future__ import annotations

from ...runtime.factory import FactoryModule

ExecutorFactoryModule = FactoryModule
GraphExecutorFactoryModule = FactoryModule

__all__ = ["ExecutorFactoryModule", "GraphExecutorFactoryModule"]
