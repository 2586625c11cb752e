"""Bundled models: real exported networks without their weights, which `hydrate` makes up."""
