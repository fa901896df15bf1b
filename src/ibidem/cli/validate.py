"""`ibidem validate`"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial

import click

from ..engine import pipeline
from ..errors import one_line
from .command_errors import InputError, print_error
from .options import echo_json, format_option, json_option
from .request_input import (
    InputRequest,
    RequestInput,
    call_library,
    is_format_detectable,
    open_source,
    raise_input_error,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation with its file and line. The fields are those of `--json`."""

    file: str
    line: int | None
    rule: str
    position: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file} line {self.line}"
        return f"{where}: {self.position}: {self.message} [{self.rule}]"


@dataclass(slots=True)
class FileFindings:
    """Violations in a file, and the number of its requests."""

    file: str
    requests: int = 0
    unreadable: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def has_started(self) -> bool:
        """A request was read, valid or not."""
        return bool(self.requests or self.unreadable)

    @property
    def summary(self) -> str:
        """The last output line."""
        violations = _format_count(len(self.findings), "violation") if self.findings else "no violations"
        unread = f", {self.unreadable:,} unreadable" if self.unreadable else ""
        return f"{self.file}: {violations} in {_format_count(self.requests, 'request')}{unread}"

    @property
    def exit_code(self) -> int:
        return 2 if self.unreadable else 1 if self.findings else 0


@click.command(short_help="Check a request against the provider's rules.")
@click.argument("file")
@format_option
@json_option
def validate(file: str, format: str | None, as_json: bool) -> int:
    """Check the request in FILE against the provider's rules, and list the violations.

    FILE is one JSON request, or one per line (JSONL); `-` is standard input. Exit codes: 0 no violations, 1 violations
    found, 2 FILE cannot be read.
    """
    with open_source(file) as source:
        report = validate_requests(source, format)
    if as_json:
        echo_json([asdict(finding) for finding in report.findings])
    else:
        for finding in report.findings:
            click.echo(one_line(str(finding)))
        click.echo(report.summary)
    return report.exit_code


def validate_requests(source: RequestInput, format: str | None) -> FileFindings:
    """Collect the violations of every request. Invalid lines are reported and skipped."""
    report = FileFindings(source.name)
    for request in source:
        if request.is_blank:
            continue
        if not report.has_started and format is None and not is_format_detectable(request):
            raise_input_error(source, request)
        try:
            report.findings.extend(_find_violations(request, format))
            report.requests += 1
        except InputError as error:
            if request.line is None:
                raise
            print_error(error.message)
            report.unreadable += 1
    return report


def _find_violations(request: InputRequest, format: str | None) -> list[Finding]:
    return [
        Finding(request.file, request.line, violation.rule, violation.position, violation.message)
        for violation in call_library(partial(pipeline.validate, format=format), request)
    ]


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
