"""Packaging of the runtime for machines without the compiler: C++ library and Python wheel."""
