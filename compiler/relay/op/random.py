"""`relay.random`: random numbers from explicit keys."""

from __future__ import annotations
