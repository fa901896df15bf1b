"""For tests: scripted and generated histories, invariants as assertions, and a mock provider.

>>> request = conv("u:fix the bug", "a:Let me look.>1", "r1:" + "x = 1\\n" * 200, "a:done", format="openai-chat")

A line is `s:` system, `u:` user, `a:` assistant (`a?thinking:text>1,2` has thinking, a text, and calls 1 and 2; each
part is optional), `r1:` the result of call 1. Consecutive results answer one batch of calls.

>>> with Upstream([Calls(("Read", {"file_path": "a.py"})), Says("done")]) as provider:
...     client = anthropic.Anthropic(base_url=provider.url, api_key="any")

The strategies need hypothesis, which the extra `testing` installs.
"""

from typing import TYPE_CHECKING, Any

from .answers import DEFAULT_ANSWER, Answer, Calls, Fails, Gzips, Halves, Headed, Pings, Raw, Resets, Says, Slow, Thinks
from .clearing import Clearing
from .forged_markers import (
    foreign_markers_change_nothing_else,
    foreign_markers_come_back,
    forgeries,
    places_of_results,
    planted,
    references_are_visible,
    tag_in,
)
from .generated import MARKER_LIKE, broken_histories, histories, texts, turns
from .laws import (
    Run,
    arrival_is_final,
    idempotent,
    lossless,
    never_larger,
    read,
    runner,
    sacred_is_sacred,
    text_and_value_agree,
    tool_output_cannot_steer,
    untouched_is_untouched,
    valid_stays_valid,
)
from .requests_seen import Seen
from .scripts import Turn, build, conv
from .signing import Signing

if TYPE_CHECKING:
    from .upstream import Upstream, by_turn

__all__ = [
    "DEFAULT_ANSWER",
    "MARKER_LIKE",
    "Answer",
    "Calls",
    "Clearing",
    "Fails",
    "Gzips",
    "Halves",
    "Headed",
    "Pings",
    "Raw",
    "Resets",
    "Run",
    "Says",
    "Seen",
    "Signing",
    "Slow",
    "Thinks",
    "Turn",
    "Upstream",
    "arrival_is_final",
    "broken_histories",
    "build",
    "by_turn",
    "conv",
    "foreign_markers_change_nothing_else",
    "foreign_markers_come_back",
    "forgeries",
    "histories",
    "idempotent",
    "lossless",
    "never_larger",
    "places_of_results",
    "planted",
    "read",
    "references_are_visible",
    "runner",
    "sacred_is_sacred",
    "tag_in",
    "text_and_value_agree",
    "texts",
    "tool_output_cannot_steer",
    "turns",
    "untouched_is_untouched",
    "valid_stays_valid",
]


def __getattr__(name: str) -> Any:
    """Load the server, and asyncio with it, on first use."""
    if name in ("Upstream", "by_turn"):
        from . import upstream

        return getattr(upstream, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
