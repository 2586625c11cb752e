"""Shell completion of bundled models, precisions, calibrations and peers."""

from __future__ import annotations

import glob
import os

from compiler.precision import INT8, PRECISIONS

PEERS = ("onnxruntime", "openvino", "relax")
CALIBRATIONS = ("minmax", "percentile", "kl")


def models(incomplete: str) -> list[str]:
    """Files and folders, then names of bundled models."""
    files = sorted(glob.glob(glob.escape(incomplete) + "*"))
    found = [path + os.sep if os.path.isdir(path) else path for path in files]
    return found + bundled(incomplete)


def bundled(incomplete: str) -> list[str]:
    from compiler.models import fill_weights

    return [name for name in fill_weights.names() if name.startswith(incomplete)]


def precisions(incomplete: str) -> list[str]:
    """Complete the last name of a comma-separated list."""
    return _last_of((*PRECISIONS, INT8), incomplete)


def peers(incomplete: str) -> list[str]:
    """Complete the last name of a comma-separated list."""
    return _last_of(PEERS, incomplete)


def sides(incomplete: str) -> list[str]:
    known = ("baton", *PEERS[:2], *(f"baton:precision={name}" for name in PRECISIONS))
    return [name for name in known if name.startswith(incomplete)]


def calibrations(incomplete: str) -> list[str]:
    return [name for name in CALIBRATIONS if name.startswith(incomplete)]


def _last_of(names: tuple[str, ...], incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [before + comma + name for name in names if name.startswith(last) and name not in given]
