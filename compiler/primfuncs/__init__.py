"""Views of PrimFuncs: fusion patterns, and questions about statements."""
