"""Errors of an adapter if its framework is missing or has an untested version."""

from __future__ import annotations


def missing(error: ModuleNotFoundError, adapter: str, packages: str) -> ModuleNotFoundError:
    """Return the error for a missing framework, with the command that installs it."""
    told = f"ibidem.adapters.{adapter} needs {error.name}: pip install {packages}"
    return ModuleNotFoundError(told, name=error.name)


def bounded(adapter: str, package: str, below: str) -> None:
    """Raise ImportError from version `untested` on, for an adapter that uses private parts of a framework."""
    from importlib.metadata import version

    found = version(package)
    if _numbers(found) >= _numbers(below):
        raise ImportError(
            f"ibidem.adapters.{adapter} is tested with {package} below {below}, but this is {found}: it uses private "
            f"methods of {package}, which can change. Upgrade Ibidem, or: pip install '{package}<{below}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    found: list[int] = []
    for piece in version.split("."):
        digits = piece[: len(piece) - len(piece.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)
