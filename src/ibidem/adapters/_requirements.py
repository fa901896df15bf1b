"""Errors of an adapter if its framework is missing or has an untested version."""

from __future__ import annotations


def missing_framework_error(error: ModuleNotFoundError, adapter: str, packages: str) -> ModuleNotFoundError:
    """Return the error for a missing framework, with the command that installs it."""
    message = f"ibidem.adapters.{adapter} needs {error.name}: pip install {packages}"
    return ModuleNotFoundError(message, name=error.name)


def check_tested_version(adapter: str, package: str, untested: str) -> None:
    """Raise ImportError from version `untested` on, for an adapter that uses private parts of a framework."""
    from importlib.metadata import version

    installed = version(package)
    if _version_numbers(installed) >= _version_numbers(untested):
        raise ImportError(
            f"ibidem.adapters.{adapter} is tested with {package} below {untested}, but this is {installed}: it uses "
            f"private methods of {package}, which can change. Upgrade Ibidem, or: pip install '{package}<{untested}'"
        )


def _version_numbers(version: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for piece in version.split("."):
        digits = piece[: len(piece) - len(piece.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
