"""Telemetry of exchanges for OpenTelemetry (`--otel`), and a version without effect when it is off."""

from __future__ import annotations

from ...environment import install_command
from ...errors import IbidemError, one_line
from ..exchange import Exchange
from ..settings import Settings
from .exchange_rows import ExchangeRow


class NoTelemetry:
    """Telemetry that reports nothing. For the thread of the exchanges."""

    is_active = False
    """True if exchanges are reported."""
    trouble = ""
    """Why reported data is not exported, in a line for the user."""

    def report_exchange(self, row: ExchangeRow, exchange: Exchange, parent: str, now: float) -> None:
        """Report a finished exchange. `parent` is the client's `traceparent`, `now` in seconds since 1970."""


def open_telemetry(settings: Settings) -> NoTelemetry:
    """Return the telemetry for `--otel`. Raises IbidemError if the package is missing or broken."""
    if settings.otel == "off":
        return NoTelemetry()
    try:
        from .otel_spans import Telemetry  # and with it OpenTelemetry
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise IbidemError(f"{error.name}: needs: {install_command('otel')}") from None
    except ImportError as error:  # installed, but broken or too old
        why = f"cannot be loaded ({one_line(str(error))})"
        raise IbidemError(f"opentelemetry: {why}: {install_command('otel', '--force-reinstall')}") from None
    try:
        return Telemetry(settings)
    except Exception as error:  # an unknown version may raise anything
        raise IbidemError(
            f"opentelemetry: cannot be used ({type(error).__name__}): {install_command('otel')}"
        ) from None
