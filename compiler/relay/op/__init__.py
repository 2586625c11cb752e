"""Relay's operators, one family per file; each makes Relax expressions and registers its name."""
