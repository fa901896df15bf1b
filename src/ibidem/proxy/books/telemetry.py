"""What OpenTelemetry is told of an exchange (`--otel`), and where nobody asked for that, nothing."""

from __future__ import annotations

from ...environment import install_command
from ...errors import IbidemError, one_line
from ..exchange import Exchange
from ..settings import Settings
from .rows import ExchangeRow


class NoTelemetry:
    """Tells nothing. For the thread of the exchanges."""

    tells = False
    trouble = ""
    """Why nothing that is told goes anywhere."""

    def ended(self, row: ExchangeRow, exchange: Exchange, parent: str, now: float) -> None:
        """An exchange is over. `parent` is the client's `traceparent`, `now` in seconds since 1970."""


def telemetry_of(settings: Settings) -> NoTelemetry:
    """Raises IbidemError where the package is missing or broken."""
    if settings.otel == "off":
        return NoTelemetry()
    try:
        from .spans import Telemetry  # and with it OpenTelemetry
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise IbidemError(f"{error.name}: needs: {install_command('otel')}") from None
    except ImportError as error:  # it is there, and broken or too old
        why = f"cannot be loaded ({one_line(str(error))})"
        raise IbidemError(f"opentelemetry: {why}: {install_command('otel', '--force-reinstall')}") from None
    try:
        return Telemetry(settings)
    except Exception as error:  # of another version than we know
        raise IbidemError(
            f"opentelemetry: cannot be used ({type(error).__name__}): {install_command('otel')}"
        ) from None
