"""Operators of com.microsoft that are not supported, and why."""

from compiler.support.text_tables import names_in_state, read_table

REASONS = names_in_state(read_table(__file__, "unsupported.txt"), "unsupported")
