"""HTML pages from Jinja2 templates, with autoescape.

A value in a template is text: markup in it is escaped, and control characters are spelled out. Only `Markup` passes
unchanged. Templates are files `*.html` next to the module that fills them. Jinja2 is optional: it is imported for the
first page.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..environment import install_command
from ..errors import IbidemError, one_line
from . import charts, number_format

if TYPE_CHECKING:
    from jinja2 import Environment


def read_asset(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text("utf-8")


def check_jinja() -> None:
    """Raise IbidemError with the install command if Jinja2 is missing. Call it before long work."""
    _get_environment()


def fill_template(name: str, **values: Any) -> str:
    """Fill a template, named by its path below the package: `report/page.html`."""
    return _get_environment().get_template(name).render(**values)


@cache
def _get_environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise IbidemError(f"HTML pages need Jinja2. Install it: {install_command('html')}") from None

    def as_text(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Markup):
            return "\t".join(map(one_line, value.split("\t")))  # browsers show a tab
        return value

    environment = Environment(
        loader=FunctionLoader(lambda name: read_asset("ibidem", name)),
        autoescape=True,
        finalize=as_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("dollars", "tokens", "percent", "plural", "file_size", "format_fixed", "drop_rounding", "saved_share")
    environment.globals |= {name: getattr(number_format, name) for name in names}
    environment.globals |= {name: getattr(charts, name) for name in ("MAX_ROWS", "MIN_SHARE", "last_slash")}
    environment.globals |= {"NO_NUMBER": number_format.NO_NUMBER, "newline": Markup("\n")}
    environment.filters["count"] = lambda number: f"{number:,}"
    environment.filters["width"] = lambda share: f"{share:.2%}"
    environment.filters["points"] = lambda percent: f"{percent:.2f}%"
    return environment


def page_assets(style: str, script: str = "", style_policy: str = "") -> dict[str, Any]:
    """Make the values for render/page.html: style, script, and a content security policy that allows only these."""
    from markupsafe import Markup

    sources = f"style-src {style_policy or _csp_hash(style)}"
    if script:
        sources += f"; script-src {_csp_hash(script)}"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    return {"style": Markup(style), "script": Markup(script), "policy": Markup(policy)}


def _csp_hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
