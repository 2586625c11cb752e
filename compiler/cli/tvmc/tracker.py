"""Trackers of devices, as `tvmc` is told of them."""

from __future__ import annotations

PORT = 9090


def tracker_host_port_from_cli(text: str | None) -> tuple[str | None, int | None]:
    """Host and port of "host:port"; 9090 without a port, and nothing of nothing."""
    host, _, port = (text or "").partition(":")
    return (host, int(port or PORT)) if host else (None, None)
