"""The build driver and its steps."""
