"""compact(): read, plan, check, write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from .. import formats, rules
from ..billing.lifetimes import Asked, CacheMode, Kept, checked_mode
from ..errors import UsageError
from ..formats.marks import Addition
from ..model import INSERTED_INDEX, Conversation, Kind, Thinking, size, to_json
from ..plan import Edit, Plan, Targets, apply, apply_step
from ..rules.demands import Violation
from ..store.recall import checked_store, default_store
from ..strategies import profiles
from ..strategies.ported.signed import respect_signed_thinking
from ..strategies.strategy import Planner, ProviderDemands, Start, Strategy, planned
from ..tokens import counter, no_more
from ..wire import Document, no_larger, open_document
from . import marking
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
    marks: tuple[Addition, ...] = ()
    """Cache breakpoints that were added, or whose TTL was changed: path and value of each."""
    kept: Kept | None = None
    """The TTL decision, if one was made."""

    def __str__(self) -> str:
        """One line, such as "12 messages, 3 results replaced, 11.6 kB less (41%)"."""
        length = len(self.conversation.messages) if self.conversation is not None else 0
        parts = [f"{length} message{'s' * (length != 1)}" if length else "request"]
        if not self.plan:
            parts.append(f"unchanged: {self.reason}" if self.reason else "unchanged")
            return ", ".join(parts)
        count = len(self.plan)
        noun = "result" if all(edit.removed for edit in self.plan) and self._edits_results_only() else "edit"
        parts.append(f"{count} {noun}{'s' * (count != 1)}" + (" replaced" if noun == "result" else ""))
        saved = self.stats.total_bytes_saved
        sent = len(self.request) if isinstance(self.request, str | bytes) else len(to_json(self.request))
        share = f"{100 * saved / (sent + saved):.0f}%"
        parts.append(f"{saved / 1000:.1f} kB less ({share})" if saved >= 1000 else f"{saved} bytes less ({share})")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<Compacted {self.format or 'unknown format'}: {self}>"

    def _edits_results_only(self) -> bool:
        conv = self._given or self.conversation
        targets = {message.index: Targets(message) for message in conv.messages} if conv is not None else {}
        found = [targets[edit.message].of(edit) for edit in self.plan if edit.message in targets]
        return len(found) == len(self.plan) and all(each is not None and each.kind == "result" for each in found)

    @cached_property
    def conversation(self) -> Conversation | None:
        """The parsed request as it is sent; None if its format is unknown."""
        if self._given is not None:
            return apply(self._given, self.plan)
        return _read(self.request, self.format) if self.format else None

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
    mode = checked_mode(cache)
    chosen = profiles.chosen(profile, strategies)
    checked(format, model, store)
    document = open_document(request)
    try:
        dialect = formats.named(format) if format is not None else formats.detect(document.value, model)
    except formats.Ambiguous as error:
        return _undecided(document, error, chosen, model)
    if format is None and isinstance(document.value, dict) and dialect.history_key not in document.value:
        return Compacted(request, Plan(), Stats(), "", dialect.name, Conversation((), dialect, document.value, False))
    conv = formats.parse(document.value, dialect)
    if dialect.has_checksum(conv.head):
        return Compacted(request, Plan(), Stats(), formats.CHECKSUM_REASON, dialect.name, conv)
    try:
        name = model or _model(conv)
        found = _compact(document, conv, chosen, name, Start(conv, name, lambda: store or default_store()))
        if mode == "off" or found.reason:
            return found
        records = store or (default_store() if any(each.revises for each in chosen) else None)
        return with_marks(found, marking.CacheSettings(mode), name, records)
    except (Exception, SystemExit) as error:  # a user's strategy may raise anything
        reason = f"{type(error).__name__}: {error}"
        log.warning("request not rewritten: %s", reason, exc_info=True)
        return Compacted(request, Plan(), Stats(failures=(reason,)), reason, dialect.name, conv)


def with_marks(found: Compacted, settings: marking.CacheSettings, model: str | None, store: Store | None) -> Compacted:
    """Add cache breakpoints to a result. Without idle times, they have the usual TTL."""
    try:
        conv = found.conversation
        if conv is None or not conv.messages:
            return found
        marks = conv.dialect.marks.found(conv.head, [message.wire for message in conv.messages])
        head = marking.tokens_in(len(to_json(dict(conv.head))))
        asked = Asked(len(conv.messages), new=marking.tokens_of(conv.messages), head=head)
        model = model or _model(conv)
        kept = marking.decided(settings, conv, model, asked, None, marks)
        key = marking.key_of(conv.messages)
        sent = marking.marked(found.request, conv.dialect, settings.mode, kept, model, key, store)
    except Exception:
        log.warning("cache breakpoints could not be added to a request", exc_info=True)
        return found
    found = replace(found, kept=kept)
    return replace(found, request=sent.request, marks=sent.additions, _given=None) if sent.additions else found


def checked(format: str | None, model: str | None, store: Any) -> None:
    """Raise IbidemError for invalid settings."""
    if format is not None:
        formats.named(format)
    if not isinstance(model, str | None):
        raise UsageError(f"model: {model!r} is not a string: pass the name of the model")
    checked_store(store)


def _undecided(
    document: Document, error: formats.Ambiguous, chosen: Sequence[Strategy], model: str | None
) -> Compacted:
    """Return the result for a request that could have several formats: it is unchanged.

    It has a reason if any of these formats would lead to an edit. Raises FormatError if it is valid in none.
    """
    readings = list(_readings(document.value, error))
    if any(_proposed(conv, chosen, model) for conv in readings):
        log.warning("request not rewritten: %s", error)
        return Compacted(document.given, Plan(), Stats(failures=(str(error),)), str(error))
    return Compacted(document.given, Plan(), Stats())


def _readings(request: Any, error: formats.Ambiguous) -> Iterator[Conversation]:
    """Yield the request parsed in each format that it could have. Raises FormatError if it is valid in none."""
    told: formats.FormatError = error
    count = 0
    for dialect in error.candidates:
        try:
            yield formats.parse(request, dialect)
            count += 1
        except formats.FormatError as wrong:
            told = wrong
    if not count:
        raise told


def _proposed(conv: Conversation, chosen: Sequence[Strategy], model: str | None) -> bool:
    """Return True if a strategy would edit the request. Originals are not stored."""
    try:
        start = Start(conv, model or _model(conv), _NoStore)
        return any(planned(each, conv, start) for each in chosen)
    except (Exception, SystemExit):
        log.warning("a request of an unknown format could not be checked", exc_info=True)
        return False


class _NoStore:
    """A store that discards everything."""

    where = "nowhere"

    def put(self, session: str, originals: Mapping[str, str]) -> None: ...

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        return {}

    def refs(self, session: str) -> set[str]:
        return set()

    def load(self, session: str) -> None: ...


def _compact(
    document: Document, conv: Conversation, chosen: Sequence[Strategy], model: str | None, start: Start
) -> Compacted:
    every = plan_all(conv, chosen, model, start)
    name = conv.dialect.name
    exact = all(strategy.exact for strategy in chosen)
    is_final = all(strategy.final for strategy in chosen)  # then thinking was signed against these very edits
    if exact and not is_final and every.plan and _has_signed_thinking(conv) and start.economy.preserved_thinking:
        every = AllPlanned(respect_signed_thinking(conv, every.plan), conv, 0)
    plan = every.plan
    refused = _broken(conv, every.result(conv), exact) if plan.structural and not every.is_valid else []
    if refused:
        reason = _reason(refused)
        log.warning("request not rewritten: %s", reason)
        return Compacted(document.given, Plan(), Stats(failures=(reason,)), reason, name, conv, tuple(refused))
    stats = Stats.of(plan, model)
    prefix = (conv.dialect.history_key,) if isinstance(document.value, dict) else ()
    written = document.write(plan.changes(prefix))
    if log.isEnabledFor(logging.INFO) and stats.total_bytes_saved:
        log.info(
            "context rewritten: dedup_hits=%d snippet_hits=%d bytes_saved=%d",
            stats.dedup_hits,
            stats.snippet_hits,
            stats.total_bytes_saved,
        )
    return Compacted(written, plan, stats, "", name, conv)


class AllPlanned(NamedTuple):
    """The edits of several strategies, applied lazily."""

    plan: Plan
    sent: Conversation
    """The conversation with the first `applied_count` edits applied."""
    done: int
    is_valid: bool = False
    """True if the result was checked and breaks no rule."""

    def result(self, conv: Conversation) -> Conversation:
        """Return the conversation with all edits applied. `conv` is the original."""
        step = Plan(self.plan.edits[self.done :])
        return apply(conv, self.plan, step, self.sent) if step.adds_parts else apply_step(self.sent, step)


def plan_all(conv: Conversation, chosen: Sequence[Strategy], model: str | None, start: Start) -> AllPlanned:
    """Return the edits of all strategies. Each gets the conversation with the edits of the earlier ones.

    Ported strategies deviate from their original only if the provider rejects the exact result and accepts the other.
    """
    demands = ProviderDemands()
    deviating = _run(conv, chosen, model, start, demands)
    if not demands.deviated or not all(strategy.exact for strategy in chosen):
        return deviating
    exact = None if demands.is_certain else _run(conv, chosen, model, start, ProviderDemands(heeded=False))
    if exact is not None and not rules.violations(exact.result(conv)):
        return exact._replace(is_valid=True)
    if not rules.violations(deviating.result(conv)):
        return deviating._replace(is_valid=True)
    return exact or _run(conv, chosen, model, start, ProviderDemands(heeded=False))


def _run(
    conv: Conversation, chosen: Sequence[Strategy], model: str | None, start: Start, demands: ProviderDemands
) -> AllPlanned:
    so_far = AllPlanned(Plan(), conv, 0)
    changed: set[Kind] = set()  # by edits that `so_far.sent` does not have yet
    closed = {INSERTED_INDEX}
    for strategy in chosen:
        plan = so_far.plan
        if changed and not (strategy.exact and changed.isdisjoint(strategy.reads)):
            closed.update(edit.message for edit in plan.edits[so_far.done :] if edit.path and edit.adds_parts)
            so_far = AllPlanned(plan, so_far.result(conv), len(plan))
            changed.clear()
        if strategy.exact:
            edits = strategy.edits(so_far.sent, demands)
            new = Plan(tuple([edit for edit in edits if edit.message not in closed]))
        else:
            proposed = planned(strategy, so_far.sent, start)
            allowed = admitted(so_far.sent, strategy, proposed, model, plan, len(conv.messages))
            new = Plan(tuple(allowed), proposed.points)
        if new:
            so_far = so_far._replace(plan=plan + new)
            changed |= strategy.touches if new.structural else strategy.touches - {"messages"}
    return so_far


def _has_signed_thinking(conv: Conversation) -> bool:
    return any(type(part) is Thinking and part.signed for message in conv.messages for part in message.parts)


def planned_for(conv: Conversation, strategy: Strategy, proposed: Plan, model: str | None) -> Plan:
    """Return the admissible edits of a strategy's plan for a request. Raises RuntimeError if they break a rule."""
    plan = Plan(tuple(admitted(conv, strategy, proposed, model)), proposed.points)
    refused = _broken(conv, apply(conv, plan)) if plan.structural else []
    if refused:
        raise RuntimeError(_reason(refused))
    return plan


def admitted(
    conv: Conversation,
    strategy: Strategy,
    proposed: Iterable[Edit],
    model: str | None,
    before: Plan | None = None,
    length: int | None = None,
) -> Iterator[Edit]:
    """Yield the edits that a strategy may make: only kinds that it touches (invariant 8), with fewer bytes and not more
    tokens (invariant 4).

    `conv` is the conversation after the edits of `earlier_plan`. It may be a part of one with `length` messages.
    """
    now = {message.index: message for message in conv.messages}
    last = len(conv.messages) if length is None else length
    closed = {INSERTED_INDEX, *(edit.message for edit in before or () if edit.path and edit.op in ("before", "after"))}
    near: Targets | None = None
    for edit in proposed:
        if not INSERTED_INDEX <= edit.message <= last:
            raise IndexError(f"strategy {strategy.name} edits message {edit.message}, which does not exist")
        if not edit.path:
            if "messages" in strategy.touches and edit.op != "set":
                yield edit
            continue
        message = None if edit.message in closed else now.get(edit.message)
        if message is not None and (near is None or near.message is not message):
            near = Targets(message)
        found = near.of(edit) if near is not None and message is not None else None
        if found is None or found.kind not in strategy.touches:
            continue
        if found.text is None:
            yield edit
        elif _smaller(edit, found.text, model):
            yield edit if edit.removed == (found.text,) else structs.replace(edit, removed=(found.text,))


def _smaller(edit: Edit, before: str, model: str | None) -> bool:
    """Return True if the new text has fewer bytes, no more bytes in JSON and no more tokens, and is not blank.

    Providers reject blank texts.
    """
    after = edit.written if isinstance(edit.written, str) else to_json(edit.written)
    if not after or after.isspace() or size(after) >= size(before):
        return False
    return edit.fewer_tokens or (no_larger(after, before) and no_more(after, before, counter(model)))


def _broken(before: Conversation, after: Conversation, exact: bool = False) -> list[Violation]:
    """Return violations of rules that only the plan breaks. A plan that leaves fewer violations is a repair.

    `exact`: the plan reproduces another system, which does the same to a request that its provider rejects anyway.
    """
    found = rules.violations(after)
    if not found:
        return []
    known = rules.violations(before)
    if exact and known:
        return []
    new = {violation.rule for violation in found} - {violation.rule for violation in known}
    return [violation for violation in found if violation.rule in new] if len(found) > len(known) else []


def _reason(refused: Sequence[Violation]) -> str:
    return f"the plan would break a rule: {refused[0]}"


def validate(request: Any, *, format: str | None = None) -> list[Violation]:
    """Return the reasons why the provider would reject a request: rule, position and message of each.

    If the request could have several formats, return the violations that all of them have.
    """
    try:
        return rules.violations(_read(request, format))
    except formats.Ambiguous as error:
        first, *others = (rules.violations(conv) for conv in _readings(open_document(request).value, error))
        said = [{(each.rule, each.message) for each in found} for found in others]
        return [each for each in first if all((each.rule, each.message) in found for found in said)]


def detect(request: Any) -> str:
    """Return the name of the request's wire format. Raises FormatError if it has none or could have several."""
    return formats.detect(open_document(request).value).name


def _read(request: Any, format: str | None) -> Conversation:
    value = open_document(request).value
    return formats.parse(value, formats.named(format) if format is not None else formats.detect(value))


def _model(conv: Conversation) -> str | None:
    found = conv.head.get("model")
    return found if isinstance(found, str) else None
