"""Keep the edits of ported strategies away from thinking that is signed against the text before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...model import Conversation, Message, Thinking
from ...plan import Edit, Plan
from .ported_strategy import separates_user_messages


def respect_signed_thinking(conv: Conversation, plan: Plan) -> Plan:
    """Return the edits of the plan that the newest Claude models accept, and with them the removal of later thinking.

    These models reject thinking if the text before it has changed, or if earlier thinking is missing other than from
    the start of the history on. Thinking that must be sent (of the active tool loop, or alone between two user
    messages) is protected: no text before it is edited. Other thinking after an edit is removed.
    """
    signed_messages = [message for message in conv.messages if any(map(_is_signed, message.parts))]
    if not signed_messages or not plan:
        return plan
    last = max(_protected_indexes(conv, signed_messages), default=-1)
    kept_edits = [edit for edit in plan if edit.message > last or _removes_thinking(edit)]
    if any(edit.strategy == "middle" for edit in plan if edit.message <= last):
        # A trim applies as a whole or not at all, and pairing repaired its result.
        kept_edits = [edit for edit in kept_edits if edit.strategy not in ("middle", "pairing")]
    others = [edit for edit in kept_edits if not _removes_thinking(edit)]
    first = min((edit.message for edit in others), default=len(conv.messages))
    whole = {edit.message for edit in others if edit.op == "drop" and not edit.path}
    removed_thinking = {(edit.message, edit.path) for edit in kept_edits if _removes_thinking(edit)}
    thoughts: list[Edit] = []
    from_start = True
    for message in signed_messages:
        paths = [part.path for part in message.parts if type(part) is Thinking]
        from_start = from_start and all((message.index, path) in removed_thinking for path in paths)
        if message.index in whole:
            continue
        if message.index > first:
            thoughts += _remove_thinking(message, kept_edits)
        elif from_start:
            thoughts += [edit for edit in kept_edits if edit.message == message.index and _removes_thinking(edit)]
    return Plan((*thoughts, *others), plan.points, plan.full_texts)


def _is_signed(part: object) -> bool:
    return type(part) is Thinking and part.signed


def _protected_indexes(conv: Conversation, signed_messages: Iterable[Message]) -> Iterator[int]:
    """Indexes of messages whose thinking must be sent."""
    start = conv.running_loop()
    loop = {message.index for message in conv.messages[start:]}
    alone = {message.index for message in signed_messages if all(type(part) is Thinking for part in message.parts)}
    for position, message in enumerate(conv.messages):
        if not any(map(_is_signed, message.parts)):
            continue
        if message.index in loop or (message.index in alone and separates_user_messages(conv.messages, position)):
            yield message.index


def _removes_thinking(edit: Edit) -> bool:
    """Return True if an edit removes only thinking from a message."""
    return edit.strategy == "thinking" and bool(edit.path)


def _remove_thinking(message: Message, kept_edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield edits that remove all thinking of a message. Those that the original does not make count 0 bytes."""
    counted_edits = {
        edit.path: edit for edit in kept_edits if edit.message == message.index and _removes_thinking(edit)
    }
    paths = [part.path for part in message.parts if type(part) is Thinking]
    for path in [()] if len(paths) == len(message.parts) else paths:
        yield counted_edits.get(path) or Edit(
            strategy="thinking",
            op="drop",
            message=message.index,
            path=path,
            hits=0,
            counted_bytes=0,
            reason="signed against text that is edited",
        )
