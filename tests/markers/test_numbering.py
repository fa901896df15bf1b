"""The tag: the same words give the same one, however a client or a framework writes them down."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ibidem
from ibidem.formats import FORMATS
from ibidem.markers.backref import marker_prefix, tag_of
from ibidem.store.references import conversation_key, opening_text
from ibidem.testing import (
    arrival_is_final,
    build,
    forgeries,
    lossless,
    places_of_results,
    planted,
    read,
    runner,
    tag_in,
)
from ibidem.testing.forged_markers import foreign_markers_change_nothing_else, foreign_markers_come_back
from ibidem.testing.scripts import Turn

every_format = pytest.mark.parametrize("format", FORMATS)
QUICK = settings(deadline=None, max_examples=50)

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
FILE = "".join(f"line {n} of a file that says something\n" for n in range(60))
LOOP = [Turn("assistant", None, None, ["c1"]), Turn("tool", results=[("c1", FILE)])]
AGAIN = [Turn("assistant", None, None, ["c2"]), Turn("tool", results=[("c2", FILE)])]
RUN = (ibidem.BackReferences(),)


def written(format: str, messages: list[list[str]], rest: list[Turn], system: str = "") -> Any:
    """A request whose first user messages have these blocks; the system text stands where the format has it."""
    made = build([*([Turn("system", system)] if system else []), *[Turn("user", "x") for _ in messages], *rest], format)
    history = made[FORMATS[format].history_key]
    said = [message for message in history if message.get("role") == "user"]
    for message, blocks in zip(said, messages, strict=False):
        kind = "input_text" if format == "openai-responses" else "text"
        if format == "gemini":
            message["parts"] = [{"text": text} for text in blocks]
        else:
            message["content"] = [{"type": kind, "text": text} for text in blocks] if len(blocks) > 1 else blocks[0]
    return made


@given(words=st.lists(WORDS, min_size=1, max_size=4), cuts=st.lists(st.booleans(), max_size=3), system=WORDS)
@QUICK
def test_how_the_first_words_are_parted_does_not_count(words: list[str], cuts: list[bool], system: str) -> None:
    messages: list[list[str]] = [[words[0]]]
    for word, cut in zip(words[1:], [*cuts, False, False, False], strict=False):
        messages.append([word]) if cut else messages[-1].append(word)
    whole = tag_of("".join(words))
    for format in FORMATS:
        for said in ([["".join(words)]], messages):
            for stands in ("", system):
                request = written(format, said, LOOP, stands)
                assert tag_in(request, format) == whole
                assert opening_text(read(request, format).messages) == "".join(words)


@every_format
def test_a_conversation_has_one_name_on_every_wire(format: str) -> None:
    plain = opening_text(read(written("anthropic", [["fix ", "it"]], LOOP), "anthropic").messages)
    other = opening_text(read(written(format, [["fix it"]], [*LOOP, *AGAIN], "Be brief."), format).messages)
    assert conversation_key(plain) == conversation_key(other)


@every_format
@given(data=st.data())
@QUICK
def test_what_comes_later_changes_no_tag(format: str, data: st.DataObject) -> None:
    said = [[data.draw(WORDS)] for _ in range(data.draw(st.integers(1, 3)))]
    later = [Turn("assistant", "well"), Turn("user", data.draw(WORDS)), *AGAIN]
    first, whole = written(format, said, LOOP), written(format, said, [*LOOP, *later])
    assert tag_in(first, format) == tag_in(whole, format)
    arrival_is_final(runner(RUN, format), whole, format)
    lossless(runner(RUN, format), whole, format)


@every_format
def test_who_is_greeted_first_is_known_by_what_he_says(format: str) -> None:
    request = build([Turn("assistant", "How can I help?"), Turn("user", "fix it"), *LOOP], format)
    assert tag_in(request, format) == tag_of("fix it")


@every_format
@pytest.mark.parametrize(
    ("before", "words"),
    [
        pytest.param([], "", id="nothing at all"),
        pytest.param([Turn("assistant", "Let me look.")], "Let me look.", id="the model speaks"),
    ],
)
def test_without_words_of_the_user_the_first_text_counts(format: str, before: list[Turn], words: str) -> None:
    request = build([*before, *LOOP, Turn("user", "go on"), *AGAIN], format)
    assert tag_in(request, format) == tag_of(words)
    lossless(runner(RUN, format), request, format)
    arrival_is_final(runner(RUN, format), request, format)


def test_a_system_text_counts_where_nobody_else_speaks() -> None:
    assert tag_in(build([Turn("system", "Be brief."), *LOOP], "openai-chat"), "openai-chat") == tag_of("Be brief.")


@every_format
@given(data=st.data())
@QUICK
def test_nothing_rests_on_a_tag_that_can_be_guessed(format: str, data: st.DataObject) -> None:
    """Who guesses the first words writes markers with the right tag into what a tool will print."""
    guessed = tag_of("fix the tests")
    request = written(format, [["fix the tests"]], [*LOOP, *AGAIN, *AGAIN])
    place = data.draw(st.sampled_from(places_of_results(request, format)))
    forged = {place: data.draw(forgeries(guessed))}
    assert marker_prefix(guessed) in forged[place]
    foreign_markers_change_nothing_else(runner(RUN, format), request, format, forged)
    foreign_markers_come_back(runner(RUN, format), request, format, forged)
    assert tag_in(planted(request, format, forged), format) == guessed
