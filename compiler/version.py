"""Which Baton this is: what its installation was given when it was built, from git's tags."""

from importlib import metadata


def package_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# A folder on the path, without an installation, has no version.
__version__ = package_version("baton-tvm") or package_version("baton-runtime") or "0+unknown"
