"""Lowering of Relax calls to workloads of the schedule library, one file per operator family."""
