"""`relay.backend.executor_factory`: Relay names for the results of `relay.build`."""

from __future__ import annotations

from ...runtime.factory import FactoryModule

ExecutorFactoryModule = FactoryModule
GraphExecutorFactoryModule = FactoryModule
