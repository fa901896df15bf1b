"""What a user of the library sees first: the printed result, and errors for wrong arguments."""

from typing import Any

import pytest

import ibidem
from ibidem.errors import IbidemError, UsageError
from ibidem.testing import conv

LISTING = "\n".join(f"def function_{number}(): ..." for number in range(200))
REQUEST = conv("u:Fix it", "a>1", f"r1:{LISTING}", "a>2", f"r2:{LISTING}")
ONE_MESSAGE = [{"role": "user", "content": "Hello"}]


def test_a_printed_result_is_one_line() -> None:
    result = ibidem.compact(REQUEST)
    assert str(result).startswith("5 messages, 1 result replaced, ")
    assert str(result).endswith(" kB less (45%)")
    assert repr(result) == f"<Compacted anthropic: {result}>"
    assert str(ibidem.Session().compact(REQUEST)) == str(result)


def test_an_unchanged_result_says_so_with_its_reason() -> None:
    assert str(ibidem.compact(conv("u:Hello"))) == "1 message, unchanged"
    ambiguous = ibidem.compact([{"role": "user", "content": "Hello"}])
    assert str(ambiguous).endswith("unchanged")


def test_a_text_request_prints_the_same_share_as_a_parsed_one() -> None:
    import json

    assert str(ibidem.compact(json.dumps(REQUEST, separators=(",", ":")))) == str(ibidem.compact(REQUEST))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"idle": "4"}, "idle: '4' is not a number of 0 or more"),
        ({"idle": -1}, "idle: -1 is not a number of 0 or more"),
        ({"context": True}, "context: True is not a number of 0 or more"),
        ({"cached": float("nan")}, "cached: nan is not a number of 0 or more"),
        ({"at": b"1"}, "at: b'1' is not a number of 0 or more"),
    ],
)
def test_wrong_numbers_are_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        ibidem.Session("recoverable").compact(ONE_MESSAGE, **arguments)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "make", [lambda **both: ibidem.compact(ONE_MESSAGE, **both), lambda **both: ibidem.Session(**both)]
)
def test_profile_and_strategies_together_are_an_error(make: Any) -> None:
    with pytest.raises(UsageError, match="are both set: pass only one"):
        make(profile="recoverable", strategies=[ibidem.Dedup()])


def test_text_that_is_not_json_says_what_to_pass() -> None:
    with pytest.raises(IbidemError, match="A string is read as JSON: pass a request body, or a list of messages"):
        ibidem.compact("Fix the bug")


@pytest.mark.parametrize("ref", ["abc", 5, "ABCDEFABCDEF"])
def test_recall_of_something_else_than_a_reference(ref: Any) -> None:
    with pytest.raises(UsageError, match=r"not a reference\. Pass the 12 hex digits in the marker"):
        ibidem.recall(ref)


def call_results(count: int) -> dict[str, Any]:
    """A history in which the model makes the same call again and again."""
    numbers = range(1, count + 1)
    lines = [line for number in numbers for line in (f"a>{number}", f"r{number}:{LISTING}")]
    request = conv("u:Fix it", *lines, calls={str(number): ("Read", {"file_path": "app.py"}) for number in numbers})
    assert isinstance(request, dict)
    return request


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_a_text_that_the_repeat_guard_sends_in_full_is_named_with_the_reason(profile: str) -> None:
    note = ", 1 result sent in full: the same call was made again right after a reference"
    session = ibidem.Session(profile)
    for count in (1, 2, 3):
        grown = session.compact(call_results(count))
    request = call_results(3)
    whole = ibidem.compact(request, profile=profile)
    assert (str(grown), str(whole)) == (str(whole), f"{str(whole).removesuffix(note)}{note}")
    assert [(text.message, text.reason) for text in whole.plan.full_texts] == [(6, note.partition(": ")[2])]
    assert grown.plan.full_texts == whole.plan.full_texts
    assert "in full" not in str(ibidem.compact(call_results(2), profile=profile))
    assert "in full" not in str(ibidem.compact(request, strategies=[ibidem.BackReferences(repeat_guard=0)]))
