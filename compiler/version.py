"""Which Baton this is: what its installation was given when it was built, from git's tags."""

from importlib import metadata

_DISTRIBUTIONS = ("baton-tvm", "baton-runtime")


def _installed() -> str:
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "0+unknown"  # a folder on the path, without an installation


__version__ = _installed()
