"""What an adapter says where its framework is missing, or newer than is known to work."""

from __future__ import annotations


def missing(error: ModuleNotFoundError, adapter: str, packages: str) -> ModuleNotFoundError:
    """For an adapter whose framework is not there: with what to type."""
    told = f"ibidem.adapters.{adapter} needs {error.name}: pip install {packages}"
    return ModuleNotFoundError(told, name=error.name)


def bounded(adapter: str, package: str, below: str) -> None:
    """For an adapter that uses what a framework does not promise to keep: raises ImportError from a version on."""
    from importlib.metadata import version

    found = version(package)
    if _numbers(found) >= _numbers(below):
        raise ImportError(
            f"ibidem.adapters.{adapter} is known to work with {package} below {below}, and this is {found}: it changes "
            f"what {package} does not promise to keep. Upgrade Ibidem, or: pip install '{package}<{below}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    found: list[int] = []
    for piece in version.split("."):
        digits = piece[: len(piece) - len(piece.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)
