"""Passes over Relax functions between the simplification and the schedules."""
