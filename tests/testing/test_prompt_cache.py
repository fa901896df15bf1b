"""The scripted provider's prompt cache: lifetimes, prices, minimums, and what a provider refuses."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any

import pytest

from ibidem.billing.cache_rules import CACHING, cache_rules_for
from ibidem.billing.usage import Usage
from ibidem.testing import Upstream
from tests.support.sdks import BODIES

LONG = "x = compute(x)\n" * 2000
MARK = {"cache_control": {"type": "ephemeral"}}
MARK_1H = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def content(*blocks: dict[str, Any], model: str = "claude-test", **more: Any) -> dict[str, Any]:
    said = [{"type": "text", **block} for block in blocks]
    return {**BODIES["anthropic"], "model": model, "messages": [{"role": "user", "content": said}], **more}


def posted(upstream: Upstream, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body), {"x-api-key": "a"})
        with connection.getresponse() as answer:
            return answer.status, json.loads(answer.read())


def told(upstream: Upstream, *blocks: dict[str, Any], **more: Any) -> Usage:
    """What a provider counted, by lifetime."""
    found = posted(upstream, "/v1/messages", content(*blocks, **more))[1]["usage"]
    assert found["cache_creation_input_tokens"] == sum(found["cache_creation"].values())
    return Usage(
        fresh=found["input_tokens"],
        read=found["cache_read_input_tokens"],
        written=found["cache_creation"]["ephemeral_5m_input_tokens"],
        written_1h=found["cache_creation"]["ephemeral_1h_input_tokens"],
    )


def test_each_lifetime_is_written_at_its_own_price_and_forgotten_in_its_own_time() -> None:
    """The beginning for an hour, what follows for five minutes."""
    now = [1000.0]
    with Upstream(clock=lambda: now[0]) as upstream:
        first, more = {"text": LONG, **MARK_1H}, {"text": LONG, **MARK}
        written = told(upstream, first, more)
        assert written.fresh == written.read == 0
        assert written.written_1h == written.written > 0
        now[0] += 301
        again = told(upstream, first, more)
        assert (again.read, again.written, again.written_1h) == (written.written_1h, written.written, 0)
        now[0] += 299
        assert told(upstream, first, more).read == written.input
        now[0] += 3599
        assert told(upstream, first, more).read == written.written_1h, "to read it is to keep it"


def test_what_was_written_for_five_minutes_is_not_kept_longer_for_a_mark_that_says_so() -> None:
    """Nobody has paid for that."""
    now = [1000.0]
    with Upstream(clock=lambda: now[0]) as upstream:
        size = told(upstream, {"text": LONG, **MARK}).input
        now[0] += 10
        assert told(upstream, {"text": LONG, **MARK_1H}).read == size
        now[0] += 301
        assert told(upstream, {"text": LONG, **MARK_1H}).written_1h == size
        now[0] += 3599
        assert told(upstream, {"text": LONG, **MARK}).read == size
        now[0] += 3599
        assert told(upstream, {"text": LONG, **MARK}).read == size, "and an hour that was paid for stays one"


def test_a_mark_on_the_request_is_one_on_its_last_block() -> None:
    with Upstream() as upstream:
        size = told(upstream, {"text": LONG}, **MARK_1H).written_1h
        assert size
        later = told(upstream, {"text": LONG}, {"text": "more"}, **MARK_1H)
        assert later.read == size
        assert 0 < later.written_1h < 40


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6"])
def test_what_is_shorter_than_the_models_minimum_is_not_kept(model: str) -> None:
    least = cache_rules_for("anthropic", model).minimum
    with Upstream() as upstream:
        for words, kept in ((least // 2, False), (2 * least, True)):
            text = "word " * words
            written = [told(upstream, {"text": text, **MARK}, model=model).read for _ in range(2)][1]
            assert bool(written) is kept


@pytest.mark.parametrize(
    ("blocks", "more", "words"),
    [
        pytest.param([MARK] * 5, {}, "A maximum of 4 blocks with cache_control may be provided. Found 5.", id="five"),
        pytest.param([MARK] * 4 + [{}], MARK, "Found 5.", id="four, and one on the request"),
        pytest.param([MARK, MARK_1H], {}, "must not come after a ttl='5m'", id="the longer one behind"),
        pytest.param([MARK, {}], MARK_1H, "must not come after a ttl='5m'", id="the longer one on the request"),
        pytest.param([MARK_1H], MARK, "another ttl", id="two on one block"),
        pytest.param([{"text": "", **MARK}], {}, "empty text blocks", id="on nothing"),
        pytest.param([{"cache_control": {"type": "ephemeral", "ttl": "1d"}}], {}, "'5m' or '1h'", id="for a day"),
        pytest.param(
            [{"type": "thinking", "thinking": "hm", "signature": "s", **MARK}],
            {},
            "thinking.cache_control: Extra inputs are not permitted",
            id="on thinking",
        ),
    ],
)
def test_marks_that_a_provider_refuses(blocks: list[Any], more: dict[str, Any], words: str) -> None:
    with Upstream() as upstream:
        status, answer = posted(upstream, "/v1/messages", content(*({"text": "x", **each} for each in blocks), **more))
        assert status == 400
        assert answer["error"]["type"] == "invalid_request_error"
        assert words in answer["error"]["message"]


@pytest.mark.parametrize(
    ("blocks", "more"),
    [
        ([MARK_1H, MARK_1H, MARK, MARK], {}),
        ([MARK_1H, MARK, MARK, {}], MARK),
        ([MARK], MARK),
        ([{}, {"text": ""}], MARK),
    ],
    ids=["four", "three and one on the request", "the same twice", "the last block is empty"],
)
def test_marks_that_a_provider_takes(blocks: list[Any], more: dict[str, Any]) -> None:
    with Upstream() as upstream:
        body = content(*({"text": LONG, **each} for each in blocks), **more)
        assert posted(upstream, "/v1/messages", body)[0] == 200


def test_an_automatic_cache_is_found_by_its_key_and_kept_for_as_long_as_is_asked() -> None:
    now = [1000.0]

    def read(path: str = "/v1/chat/completions", **more: str) -> int:
        said = {"messages": [{"role": "user", "content": LONG}], "input": LONG}
        usage = posted(upstream, path, {"model": "gpt-5", **said, **more})[1]["usage"]
        return int((usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"])

    with Upstream(clock=lambda: now[0]) as upstream:
        assert [bool(read()) for _ in range(2)] == [False, True]
        assert [bool(read(prompt_cache_key=key)) for key in ("one", "two", "one")] == [False, False, True]
        now[0] += CACHING["openai"].lifetime + 1
        assert not read(prompt_cache_key="one")
        for path in ("/v1/chat/completions", "/v1/responses"):
            kept = {"prompt_cache_key": path, "prompt_cache_retention": "24h"}
            assert not read(path, **kept)
            now[0] += 23 * 3600
            assert read(path, **kept)
            now[0] += 25 * 3600
            assert not read(path, **kept)
