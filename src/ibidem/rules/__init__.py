"""What providers accept: one named demand per file.

A rule (`rule.Rule`) names the formats that make its demand and yields a `Violation` for each place that does not meet
it. They complain and change nothing: the engine asks them before it sends a plan that moves more than texts, `validate`
asks them for people, and `strategies.repair` mends what they find.

`pairing` says which result answers which call: nobody works that out again.

A new rule is a file, a line in `RULES`, and rows in tests/rules/test_rules.py with the provider's own words and where
they stand. Formats are named in `formats` alone; what a rule needs to know of one beyond that is asked of the dialect.
"""

from __future__ import annotations

from ..model import Conversation
from .alternating_roles import AlternatingRoles
from .cache_marks import CacheMarks
from .call_arguments import CallArguments
from .calls_answered import CallsAnswered
from .compaction_first import CompactionFirst
from .content_or_calls import ContentOrCalls
from .first_is_user import FirstIsUser
from .known_roles import KnownRoles
from .last_is_not_assistant import LastIsNotAssistant
from .not_empty import NotEmpty
from .pairing import pair
from .parts_not_empty import PartsNotEmpty
from .reasoning_kept import ReasoningKept
from .response_object import ResponseObject
from .result_not_empty import ResultNotEmpty
from .results_answer import ResultsAnswer
from .results_first import ResultsFirst
from .rule import Rule, Violation
from .shape import MessageShape
from .system_messages import SystemMessages
from .text_not_empty import TextNotEmpty
from .thinking_before_calls import ThinkingBeforeCalls
from .unique_ids import UniqueIds

RULES: tuple[Rule | CallsAnswered | ResultsAnswer, ...] = (
    MessageShape(),
    NotEmpty(),
    KnownRoles(),
    FirstIsUser(),
    AlternatingRoles(),
    SystemMessages(),
    LastIsNotAssistant(),
    CallsAnswered(),
    ResultsAnswer(),
    UniqueIds(),
    ResultsFirst(),
    ThinkingBeforeCalls(),
    ReasoningKept(),
    CallArguments(),
    TextNotEmpty(),
    ResultNotEmpty(),
    ContentOrCalls(),
    PartsNotEmpty(),
    ResponseObject(),
    CompactionFirst(),
    CacheMarks(),
)


def violations(conv: Conversation) -> list[Violation]:
    """Everything the conversation's provider would refuse it for."""
    asked = [rule for rule in RULES if conv.dialect.name in rule.formats]
    if not asked:
        return []
    pairing = pair(conv)  # once for the rules that ask for it
    found: list[Violation] = []
    for rule in asked:
        found.extend(
            rule.among(conv, pairing) if isinstance(rule, CallsAnswered | ResultsAnswer) else rule.violations(conv)
        )
    return found
