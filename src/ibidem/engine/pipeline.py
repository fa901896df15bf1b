"""compact(): read, plan, check, write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from .. import formats, rules
from ..billing.cache_ttl import CacheMode, CacheRequest, TtlDecision, validate_cache_mode
from ..errors import UsageError
from ..formats.cache_control import FieldAddition
from ..model import INSERTED_INDEX, Conversation, Kind, Thinking, to_json, utf8_size
from ..plan import Edit, EditTargets, Plan, apply_plan, apply_step
from ..rules.demands import Violation
from ..store.recall import check_store, default_store
from ..strategies import profiles
from ..strategies.ported.signed_thinking import respect_signed_thinking
from ..strategies.strategy import ConversationStart, Planner, ProviderDemands, Strategy, plan_once
from ..tokens import counter_for, has_no_more_tokens
from ..wire import Document, no_larger, open_document
from . import breakpoint_placement
from .stats import Stats

if TYPE_CHECKING:
    from ..store import Store

log = logging.getLogger("ibidem")
log.addHandler(logging.NullHandler())  # a library must not log unless the program enables it


@dataclass(frozen=True, repr=False)
class Compacted:
    """Result of `compact`. `request` has the type that was passed, and is the same object if nothing changed."""

    request: Any
    """The request to send."""
    plan: Plan
    """The edits that were made."""
    stats: Stats
    """Savings of these edits."""
    reason: str = ""
    """Why the request is unchanged, if there was a problem."""
    format: str = ""
    """Wire format. Empty if it is unknown; such a request is unchanged."""
    _given: Conversation | None = field(default=None, repr=False)
    """The original request, parsed, if the plan is the only change."""
    _refused: tuple[Violation, ...] = ()
    marks: tuple[FieldAddition, ...] = ()
    """Cache breakpoints that were added, or whose TTL was changed: path and value of each."""
    kept: TtlDecision | None = None
    """The TTL decision, if one was made."""

    def __str__(self) -> str:
        """One line, such as "12 messages, 3 results replaced, 11.6 kB less (41%)"."""
        length = len(self.conversation.messages) if self.conversation is not None else 0
        parts = [f"{length} message{'s' * (length != 1)}" if length else "request"]
        if not self.plan:
            parts.append(f"unchanged: {self.reason}" if self.reason else "unchanged")
            return ", ".join([*parts, *self.plan.full_text_lines])
        count = len(self.plan)
        noun = "result" if all(edit.removed for edit in self.plan) and self._edits_results_only() else "edit"
        parts.append(f"{count} {noun}{'s' * (count != 1)}" + (" replaced" if noun == "result" else ""))
        saved_bytes = self.stats.total_bytes_saved
        sent_bytes = len(self.request) if isinstance(self.request, str | bytes) else len(to_json(self.request))
        share = f"{100 * saved_bytes / (sent_bytes + saved_bytes):.0f}%"
        parts.append(
            f"{saved_bytes / 1000:.1f} kB less ({share})"
            if saved_bytes >= 1000
            else f"{saved_bytes} bytes less ({share})"
        )
        return ", ".join([*parts, *self.plan.full_text_lines])

    def __repr__(self) -> str:
        return f"<Compacted {self.format or 'unknown format'}: {self}>"

    def _edits_results_only(self) -> bool:
        conv = self._given or self.conversation
        targets = {message.index: EditTargets(message) for message in conv.messages} if conv is not None else {}
        edited_parts = [targets[edit.message].find_target(edit) for edit in self.plan if edit.message in targets]
        return len(edited_parts) == len(self.plan) and all(
            each is not None and each.kind == "result" for each in edited_parts
        )

    @cached_property
    def conversation(self) -> Conversation | None:
        """The parsed request as it is sent; None if its format is unknown."""
        if self._given is not None:
            return apply_plan(self._given, self.plan)
        return _parse_request(self.request, self.format) if self.format else None

    @cached_property
    def violations(self) -> list[Violation]:
        """Violations of the provider's rules: by the rejected plan, if there is one, else by the request as sent."""
        if self._refused:
            return list(self._refused)
        return rules.violations(self.conversation) if self.conversation else []


def compact(
    request: Any,
    *,
    profile: str = "lossless",
    strategies: Sequence[Planner] | None = None,
    format: str | None = None,
    model: str | None = None,
    store: Store | None = None,
    cache: CacheMode = "off",
) -> Compacted:
    """Replace repeated text in a request with references. The request itself is never modified.

    `request` is a provider's request body or a list of messages, items or contents, parsed or as JSON text. Raises
    IbidemError if it is not a request, and UsageError for invalid settings. After any other problem the request is
    returned unchanged, with the reason (invariant 12). So is a request that could have several formats (pass `format`),
    and one with a checksum of its body (see docs/security.md). Evicted texts are saved in `store` (default: the user's
    own store). `cache="auto"` adds cache breakpoints to a request without any: see docs/caching.md.
    """
    mode = validate_cache_mode(cache)
    selected_strategies = profiles.select_strategies(profile, strategies)
    check_options(format, model, store)
    document = open_document(request)
    try:
        dialect = formats.format_named(format) if format is not None else formats.detect_format(document.value, model)
    except formats.AmbiguousFormat as error:
        return _compact_ambiguous(document, error, selected_strategies, model)
    if format is None and isinstance(document.value, dict) and dialect.history_key not in document.value:
        return Compacted(request, Plan(), Stats(), "", dialect.name, Conversation((), dialect, document.value, False))
    conv = formats.parse_request(document.value, dialect)
    if dialect.has_checksum(conv.head):
        return Compacted(request, Plan(), Stats(), formats.CHECKSUM_REASON, dialect.name, conv)
    try:
        name = model or _request_model(conv)
        result = _compact_parsed(
            document, conv, selected_strategies, name, ConversationStart(conv, name, lambda: store or default_store())
        )
        if mode == "off" or result.reason:
            return result
        records = store or (default_store() if any(each.revises for each in selected_strategies) else None)
        return with_breakpoints(result, breakpoint_placement.CacheSettings(mode), name, records)
    except (Exception, SystemExit) as error:  # a user's strategy may raise anything
        reason = f"{type(error).__name__}: {error}"
        log.warning("request not rewritten: %s", reason, exc_info=True)
        return Compacted(request, Plan(), Stats(failures=(reason,)), reason, dialect.name, conv)


def with_breakpoints(
    result: Compacted, settings: breakpoint_placement.CacheSettings, model: str | None, store: Store | None
) -> Compacted:
    """Add cache breakpoints to a result. Without idle times, they have the usual TTL."""
    try:
        conv = result.conversation
        if conv is None or not conv.messages:
            return result
        breakpoints = conv.dialect.cache_control.all_breakpoints(conv.head, [message.wire for message in conv.messages])
        head = breakpoint_placement.tokens_for_bytes(len(to_json(dict(conv.head))))
        cache_request = CacheRequest(
            len(conv.messages), new=breakpoint_placement.message_tokens(conv.messages), head=head
        )
        model = model or _request_model(conv)
        decision = breakpoint_placement.decide_ttl(settings, conv, model, cache_request, None, breakpoints)
        key = breakpoint_placement.cache_key_for(conv.messages)
        request_with_breakpoints = breakpoint_placement.apply_breakpoints(
            result.request, conv.dialect, settings.mode, decision, model, key, store
        )
    except Exception:
        log.warning("cache breakpoints could not be added to a request", exc_info=True)
        return result
    result = replace(result, kept=decision)
    return (
        replace(result, request=request_with_breakpoints.request, marks=request_with_breakpoints.additions, _given=None)
        if request_with_breakpoints.additions
        else result
    )


def check_options(format: str | None, model: str | None, store: Any) -> None:
    """Raise IbidemError for invalid settings."""
    if format is not None:
        formats.format_named(format)
    if not isinstance(model, str | None):
        raise UsageError(f"model: {model!r} is not a string: pass the name of the model")
    check_store(store)


def _compact_ambiguous(
    document: Document, error: formats.AmbiguousFormat, selected_strategies: Sequence[Strategy], model: str | None
) -> Compacted:
    """Return the result for a request that could have several formats: it is unchanged.

    It has a reason if any of these formats would lead to an edit. Raises FormatError if it is valid in none.
    """
    readings = list(_parse_candidates(document.value, error))
    if any(_would_rewrite(conv, selected_strategies, model) for conv in readings):
        log.warning("request not rewritten: %s", error)
        return Compacted(document.original, Plan(), Stats(failures=(str(error),)), str(error))
    return Compacted(document.original, Plan(), Stats())


def _parse_candidates(request: Any, error: formats.AmbiguousFormat) -> Iterator[Conversation]:
    """Yield the request parsed in each format that it could have. Raises FormatError if it is valid in none."""
    last_error: formats.FormatError = error
    count = 0
    for dialect in error.candidates:
        try:
            yield formats.parse_request(request, dialect)
            count += 1
        except formats.FormatError as parse_error:
            last_error = parse_error
    if not count:
        raise last_error


def _would_rewrite(conv: Conversation, selected_strategies: Sequence[Strategy], model: str | None) -> bool:
    """Return True if a strategy would edit the request. Originals are not stored."""
    try:
        start = ConversationStart(conv, model or _request_model(conv), _DiscardingStore)
        return any(plan_once(each, conv, start) for each in selected_strategies)
    except (Exception, SystemExit):
        log.warning("a request of an unknown format could not be checked", exc_info=True)
        return False


class _DiscardingStore:
    """A store that discards everything."""

    where = "nowhere"

    def put(self, session: str, originals: Mapping[str, str]) -> None: ...

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        return {}

    def refs(self, session: str) -> set[str]:
        return set()

    def load(self, session: str) -> None: ...


def _compact_parsed(
    document: Document,
    conv: Conversation,
    selected_strategies: Sequence[Strategy],
    model: str | None,
    start: ConversationStart,
) -> Compacted:
    combined = plan_all(conv, selected_strategies, model, start)
    name = conv.dialect.name
    exact = all(strategy.exact for strategy in selected_strategies)
    is_final = all(
        strategy.final for strategy in selected_strategies
    )  # then thinking was signed against these very edits
    if exact and not is_final and combined.plan and _has_signed_thinking(conv) and start.economy.preserved_thinking:
        combined = CombinedPlan(respect_signed_thinking(conv, combined.plan), conv, 0)
    plan = combined.plan
    new_violations = (
        _new_violations(conv, combined.final_conversation(conv), exact)
        if plan.structural and not combined.is_valid
        else []
    )
    if new_violations:
        reason = _violation_reason(new_violations)
        log.warning("request not rewritten: %s", reason)
        return Compacted(
            document.original, Plan(), Stats(failures=(reason,)), reason, name, conv, tuple(new_violations)
        )
    stats = Stats.of(plan, model)
    prefix = (conv.dialect.history_key,) if isinstance(document.value, dict) else ()
    new_request = document.write(plan.changes(prefix))
    if log.isEnabledFor(logging.INFO) and stats.total_bytes_saved:
        log.info(
            "context rewritten: dedup_hits=%d snippet_hits=%d bytes_saved=%d",
            stats.dedup_hits,
            stats.snippet_hits,
            stats.total_bytes_saved,
        )
    return Compacted(new_request, plan, stats, "", name, conv)


class CombinedPlan(NamedTuple):
    """The edits of several strategies, applied lazily."""

    plan: Plan
    conversation: Conversation
    """The conversation with the first `applied_count` edits applied."""
    applied_count: int
    is_valid: bool = False
    """True if the result was checked and breaks no rule."""

    def final_conversation(self, conv: Conversation) -> Conversation:
        """Return the conversation with all edits applied. `conv` is the original."""
        step = Plan(self.plan.edits[self.applied_count :])
        return (
            apply_plan(conv, self.plan, step, self.conversation)
            if step.adds_parts
            else apply_step(self.conversation, step)
        )


def plan_all(
    conv: Conversation, selected_strategies: Sequence[Strategy], model: str | None, start: ConversationStart
) -> CombinedPlan:
    """Return the edits of all strategies. Each gets the conversation with the edits of the earlier ones.

    Ported strategies deviate from their original only if the provider rejects the exact result and accepts the other.
    """
    demands = ProviderDemands()
    allowed = _run_strategies(conv, selected_strategies, model, start, demands)
    if not demands.has_deviated or not all(strategy.exact for strategy in selected_strategies):
        return allowed
    exact = (
        None
        if demands.is_certain
        else _run_strategies(conv, selected_strategies, model, start, ProviderDemands(is_enforced=False))
    )
    if exact is not None and not rules.violations(exact.final_conversation(conv)):
        return exact._replace(is_valid=True)
    if not rules.violations(allowed.final_conversation(conv)):
        return allowed._replace(is_valid=True)
    return exact or _run_strategies(conv, selected_strategies, model, start, ProviderDemands(is_enforced=False))


def _run_strategies(
    conv: Conversation,
    selected_strategies: Sequence[Strategy],
    model: str | None,
    start: ConversationStart,
    demands: ProviderDemands,
) -> CombinedPlan:
    so_far = CombinedPlan(Plan(), conv, 0)
    pending_kinds: set[Kind] = set()  # by edits that `so_far.sent` does not have yet
    closed_messages = {INSERTED_INDEX}
    for strategy in selected_strategies:
        plan = so_far.plan
        if pending_kinds and not (strategy.exact and pending_kinds.isdisjoint(strategy.reads)):
            closed_messages.update(
                edit.message for edit in plan.edits[so_far.applied_count :] if edit.path and edit.adds_parts
            )
            so_far = CombinedPlan(plan, so_far.final_conversation(conv), len(plan))
            pending_kinds.clear()
        if strategy.exact:
            edits = strategy.edits(so_far.conversation, demands)
            new = Plan(tuple([edit for edit in edits if edit.message not in closed_messages]))
        else:
            proposed_plan = plan_once(strategy, so_far.conversation, start)
            allowed_edits = admissible_edits(
                so_far.conversation, strategy, proposed_plan, model, plan, len(conv.messages)
            )
            new = Plan(tuple(allowed_edits), proposed_plan.points, proposed_plan.full_texts)
        if new:
            so_far = so_far._replace(plan=plan + new)
            pending_kinds |= strategy.touches if new.structural else strategy.touches - {"messages"}
    return so_far


def _has_signed_thinking(conv: Conversation) -> bool:
    return any(type(part) is Thinking and part.signed for message in conv.messages for part in message.parts)


def plan_request(conv: Conversation, strategy: Strategy, proposed_plan: Plan, model: str | None) -> Plan:
    """Return the admissible edits of a strategy's plan for a request. Raises RuntimeError if they break a rule."""
    plan = Plan(tuple(admissible_edits(conv, strategy, proposed_plan, model)), proposed_plan.points)
    new_violations = _new_violations(conv, apply_plan(conv, plan)) if plan.structural else []
    if new_violations:
        raise RuntimeError(_violation_reason(new_violations))
    return plan


def admissible_edits(
    conv: Conversation,
    strategy: Strategy,
    proposed_edits: Iterable[Edit],
    model: str | None,
    earlier_plan: Plan | None = None,
    length: int | None = None,
) -> Iterator[Edit]:
    """Yield the edits that a strategy may make: only kinds that it touches (invariant 8), with fewer bytes and not more
    tokens (invariant 4).

    `conv` is the conversation after the edits of `earlier_plan`. It may be a part of one with `length` messages.
    """
    messages = {message.index: message for message in conv.messages}
    last = len(conv.messages) if length is None else length
    closed_messages = {
        INSERTED_INDEX,
        *(edit.message for edit in earlier_plan or () if edit.path and edit.op in ("before", "after")),
    }
    targets: EditTargets | None = None
    for edit in proposed_edits:
        if not INSERTED_INDEX <= edit.message <= last:
            raise IndexError(f"strategy {strategy.name} edits message {edit.message}, which does not exist")
        if not edit.path:
            if "messages" in strategy.touches and edit.op != "set":
                yield edit
            continue
        message = None if edit.message in closed_messages else messages.get(edit.message)
        if message is not None and (targets is None or targets.message is not message):
            targets = EditTargets(message)
        target = targets.find_target(edit) if targets is not None and message is not None else None
        if target is None or target.kind not in strategy.touches:
            continue
        if target.text is None:
            yield edit
        elif _is_smaller(edit, target.text, model):
            yield edit if edit.removed == (target.text,) else structs.replace(edit, removed=(target.text,))


def _is_smaller(edit: Edit, before: str, model: str | None) -> bool:
    """Return True if the new text has fewer bytes, no more bytes in JSON and no more tokens, and is not blank.

    Providers reject blank texts.
    """
    after = edit.written if isinstance(edit.written, str) else to_json(edit.written)
    if not after or after.isspace() or utf8_size(after) >= utf8_size(before):
        return False
    return edit.fewer_tokens or (no_larger(after, before) and has_no_more_tokens(after, before, counter_for(model)))


def _new_violations(before: Conversation, after: Conversation, exact: bool = False) -> list[Violation]:
    """Return violations of rules that only the plan breaks. A plan that leaves fewer violations is a repair.

    `exact`: the plan reproduces another system, which does the same to a request that its provider rejects anyway.
    """
    violations_after = rules.violations(after)
    if not violations_after:
        return []
    violations_before = rules.violations(before)
    if exact and violations_before:
        return []
    new = {violation.rule for violation in violations_after} - {violation.rule for violation in violations_before}
    return (
        [violation for violation in violations_after if violation.rule in new]
        if len(violations_after) > len(violations_before)
        else []
    )


def _violation_reason(new_violations: Sequence[Violation]) -> str:
    return f"the plan would break a rule: {new_violations[0]}"


def validate(request: Any, *, format: str | None = None) -> list[Violation]:
    """Return the reasons why the provider would reject a request: rule, position and message of each.

    If the request could have several formats, return the violations that all of them have.
    """
    try:
        return rules.violations(_parse_request(request, format))
    except formats.AmbiguousFormat as error:
        first, *others = (rules.violations(conv) for conv in _parse_candidates(open_document(request).value, error))
        other_violations = [{(each.rule, each.message) for each in found} for found in others]
        return [each for each in first if all((each.rule, each.message) in found for found in other_violations)]


def detect(request: Any) -> str:
    """Return the name of the request's wire format. Raises FormatError if it has none or could have several."""
    return formats.detect_format(open_document(request).value).name


def _parse_request(request: Any, format: str | None) -> Conversation:
    value = open_document(request).value
    return formats.parse_request(
        value, formats.format_named(format) if format is not None else formats.detect_format(value)
    )


def _request_model(conv: Conversation) -> str | None:
    model = conv.head.get("model")
    return model if isinstance(model, str) else None
