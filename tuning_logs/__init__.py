"""Tuning logs shipped with Baton: data only, found with `importlib.resources.files`."""
