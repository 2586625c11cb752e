"""`tvm.runtime.executor`: modules of `Executor("aot")`, whose libraries every executor runs."""

from ..runtime.graph_executor import GraphModule as AotModule

__all__ = ["AotModule"]
