"""`relay.backend.executor_factory`: Relay names for the results of `relay.build`."""

from ...runtime.factory import FactoryModule

ExecutorFactoryModule = FactoryModule
GraphExecutorFactoryModule = FactoryModule
