"""Compiler-independent utilities for all layers: files, folders, processes and contexts."""
