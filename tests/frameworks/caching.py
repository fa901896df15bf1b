"""What a framework asks of the provider's cache, with its own settings and with `cache="auto"`, looked at on the wire.

    python -m tests.frameworks.caching NAME

prints what `docs/caching.md` says of it. `checks` is what the contract asks: what `Framework.caching` declares is what
arrives, providers would take it, and from the second request on the cache is read.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import ibidem
from ibidem.errors import UsageError
from ibidem.store import MemoryStore
from ibidem.testing import Answer, Fails, Seen, Upstream, by_turn

from .framework import Framework, OwnCaching, Ran, Task
from .scenario import ANSWERS, PROMPTS, SCRIPT, Files

RULES = " ".join(
    f"Rule {number}: a file with the number {number * 37} is read before it is judged." for number in range(400)
)
"""A system prompt that is longer than what any model asks for as a minimum."""
MARK = "cache_control"
WORDS = (b"cache_control", b"cachePoint", b"prompt_cache_key")
MARKS = 4
"""That a request may have."""
HEAD = ("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
"""Fields of a request that speak of the cache."""
WHOLE = 0.95
"""Of a request, what the next one reads at least if all of it was kept: a framework may send a few words only once."""
COUNTS = {
    "read": ("cache_read_input_tokens", "cached_tokens", "cachedContentTokenCount"),
    "whole": ("prompt_tokens", "promptTokenCount", "input_tokens"),
    "beside": ("cache_read_input_tokens", "cache_creation_input_tokens"),
}
"""Where providers say what was read, what was sent, and what is not counted in that."""


class CachedRequest(NamedTuple):
    """One request as it came, and what its provider counted."""

    body: Mapping[str, Any]
    read: int
    whole: int


# ── what is asked for ───────────────────────────────────────────────────────────────────────────────────────────────


def asks(body: Mapping[str, Any]) -> str:
    """What a request says about the cache: where its marks stand, for how long, and fields of its head."""
    found = [f"{place} {ttl}" for place, ttl in marks(body)]
    found += [name if name.endswith("key") else f"{name}={body[name]}" for name in HEAD if name in body]
    points = _carriers(list(body.get("messages") or body.get("input") or ()), "prompt_cache_breakpoint")
    found += ["prompt_cache_breakpoint"] * len(points)
    return ", ".join(dict.fromkeys(found)) or "nothing"


def marks(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where marks stand, in the order of the prefix, each with its lifetime."""
    found = [(name, mark) for name in ("tools", "system") for mark in _carriers(body.get(name), MARK)]
    messages = list(body.get("messages") or ())
    for behind, message in zip(range(len(messages), 0, -1), messages, strict=True):
        place = "last message" if behind == 1 else "earlier message"
        found += [(place, mark) for mark in _carriers(message, MARK)]
    if MARK in body:
        found.append(("request", body[MARK]))
    return [(place, mark.get("ttl", "5m")) for place, mark in found]


def _carriers(value: Any, name: str) -> list[Any]:
    """The values of a field, wherever it stands in there."""
    if isinstance(value, dict):
        own = [value[name]] if name in value else []
        return own + [each for key, inside in value.items() if key != name for each in _carriers(inside, name)]
    return [each for inside in value for each in _carriers(inside, name)] if isinstance(value, list) else []


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def sent(
    framework: Framework, format: str, caching: bool = False, adapter: Any = None, mode: str = ""
) -> tuple[list[CachedRequest], Ran]:
    """The requests of a run with a long system prompt, and what came of it."""
    with framework.provider(format, by_turn(SCRIPT)) as upstream:
        mode = mode or framework.modes[0]
        task = Task(upstream.url, format, mode, PROMPTS, Files(), adapter, system=RULES, caching=caching)
        ran = framework.run(task)
        every = [seen for seen in upstream.seen if framework.is_request(seen)]
    bodies = [framework.read_wire(seen.json, format)[0] for seen in every]
    if all(body == seen.json for body, seen in zip(bodies, every, strict=True)):
        return [_counted(seen.json, seen) for seen in every], ran
    return [_counted(*each) for each in zip(bodies, _asked_again(bodies), strict=True)], ran


def _asked_again(bodies: Sequence[Any]) -> list[Seen]:
    """What a provider counts that is asked the same in words that the scripted one knows."""
    with Upstream(by_turn(SCRIPT)) as upstream:
        for body in bodies:
            asked = urllib.request.Request(f"{upstream.url}/v1/messages", json.dumps(body).encode(), {"x-api-key": "k"})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                answer.read()
        return upstream.seen


def _counted(body: Any, seen: Seen) -> CachedRequest:
    answer = seen.answer.decode("utf-8", "replace")
    beside = sum(_count(answer, (name,)) for name in COUNTS["beside"])
    return CachedRequest(body, _count(answer, COUNTS["read"]), _count(answer, COUNTS["whole"]) + beside)


def _count(answer: str, names: tuple[str, ...]) -> int:
    """The last that an answer has of the first of these names that it has: a stream counts more than once."""
    for name in names:
        if found := re.findall(rf'"{name}": ?(\d+)', answer):
            return int(found[-1])
    return 0


def asked_by(requests: list[CachedRequest]) -> str:
    """What all requests from the second on ask for; the first has no history."""
    return " or ".join(dict.fromkeys(asks(each.body) for each in requests[1:]))


# ── checks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def checks(framework: Framework, formats: Sequence[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """For these wires, and those that a framework speaks without us."""
    for format, declared in framework.caching.items():
        if format in formats or format not in framework.formats:
            yield f"{format} own caching", lambda format=format, declared=declared: own(framework, format, declared)  # type: ignore[misc]
    if type(framework).caching_adapter is not Framework.caching_adapter:
        for format in formats:
            yield f'{format} cache="auto"', lambda format=format: auto(framework, format)  # type: ignore[misc]


def own(framework: Framework, format: str, declared: OwnCaching) -> None:
    """What is declared is what arrives, without the settings and with them, and the cache is read."""
    bare, _ = sent(framework, format)
    assert asked_by(bare) == declared.default, f"by default: {asked_by(bare)}"
    requests, _ = sent(framework, format, caching=True)
    assert asked_by(requests) == declared.told, f"with its settings: {asked_by(requests)}"
    good(requests, framework.read_wire(requests[0].body, format)[1])
    assert is_whole(requests) == declared.grows, [each[1:] for each in requests]


def auto(framework: Framework, format: str) -> None:
    """Requests without marks get some where their provider wants them, those with marks stay, and so does history."""
    if refusal := refused(framework, format):
        assert "docs/caching.md" in refusal, refusal
        return
    bare, expected = sent(framework, format)
    requests, ran = sent(framework, format, adapter=framework.caching_adapter(format))
    assert ran == expected, f"the framework keeps something else with us: {difference(ran, expected)}"
    wire = framework.read_wire(requests[0].body, format)[1]
    good(requests, wire)
    texts = [plain(framework.same(ibidem.expand(dict(each.body), format=wire))) for each in requests]
    assert texts == [plain(framework.same(each.body)) for each in bare], (
        "what is left without marks is not what came without us"
    )
    for request in requests:
        again = ibidem.compact(dict(request.body), format=wire, cache="auto", store=MemoryStore())
        assert plain(again.request) == plain(request.body), "a second pass changes something"
        assert marks(again.request) == marks(request.body), "a second pass puts marks where there are some"
    if bare[-1].read:  # it is kept without being asked for
        assert [marks(each.body) for each in requests] == [marks(each.body) for each in bare]
    else:
        assert is_whole(requests), [each[1:] for each in requests]
    for mode in framework.modes[1:]:
        if f"{format} {mode}" in framework.left_out:
            continue
        also, _ = sent(framework, format, adapter=framework.caching_adapter(format), mode=mode)
        assert [marks(each.body) for each in also] == [marks(each.body) for each in requests], mode
    if format in framework.caching:
        theirs, _ = sent(framework, format, caching=True)
        both, _ = sent(framework, format, caching=True, adapter=framework.caching_adapter(format))
        assert timeless(asked_by(both)) == timeless(asked_by(theirs)), "what the user set was changed"


def difference(one: object, other: object) -> str:
    """Where two values begin to differ."""
    texts = [repr(one), repr(other)]
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    place = len([*alike])
    return ", and not ".join(text[max(0, place - 40) : place + 80] for text in texts)


def timeless(asked: str) -> str:
    """Without lifetimes: on the wire these are ours to choose, by `auto` too."""
    return re.sub(r" (5m|1h)\b", "", asked)


def marks_refused(framework: Framework, *formats: str) -> None:
    """A provider that takes no marks gets the request without, and so all later ones of the conversation."""
    script = by_turn(SCRIPT)

    def picky(seen: Seen) -> Answer:
        return Fails(400, message="no marks, please") if any(word in seen.text for word in WORDS) else script(seen)

    for format in formats:
        with framework.provider(format, picky) as upstream:
            adapter = framework.caching_adapter(format)
            ran = framework.run(Task(upstream.url, format, framework.modes[0], PROMPTS, Files(), adapter, system=RULES))
            marked = [any(word in seen.text for word in WORDS) for seen in upstream.seen if framework.is_request(seen)]
        assert ran.texts == ANSWERS, ran.texts
        tries = marked.index(False)  # some packages try again themselves
        assert tries, "nothing was marked"
        assert marked[tries:] == [False] * len(SCRIPT), marked


def refused(framework: Framework, format: str) -> str:
    """Why an adapter does not take it; empty if it does."""
    try:
        framework.caching_adapter(format)
    except UsageError as error:
        return str(error)
    return ""


def plain(value: Any) -> Any:
    """Without what is said about the cache. A text may be a block, to carry a mark."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: plain(each) for key, each in value.items() if key not in (MARK, *HEAD)}
    for name in ("content", "system"):
        if isinstance(found.get(name), str):
            found[name] = [{"type": "text", "text": found[name]}]
    return found


def good(requests: list[CachedRequest], format: str) -> None:
    """Their provider takes them, and reads its cache from the second on."""
    assert len(requests) == len(SCRIPT)
    for number, request in enumerate(requests, 1):
        assert not ibidem.validate(dict(request.body), format=format)
        assert len(marks(request.body)) <= MARKS, asks(request.body)
        assert number == 1 or request.read, f"request {number} reads nothing: {asks(request.body)}"


def is_whole(requests: list[CachedRequest]) -> bool:
    """Whether each request reads all that the one before has sent."""
    return all(after.read >= WHOLE * before.whole for before, after in pairwise(requests))


def share(requests: Sequence[CachedRequest]) -> float:
    """Of all input, what was read."""
    return sum(each.read for each in requests) / sum(each.whole for each in requests)


def rows(framework: Framework) -> Iterator[tuple[str, ...]]:
    """For the table of the docs: wire, by default, with its own settings, and what is read of all input, both ways."""
    for format in framework.caching:
        bare, _ = sent(framework, format)
        told, _ = sent(framework, format, caching=True)
        yield format, asked_by(bare), asked_by(told), f"{100 * share(bare):.0f} %, {100 * share(told):.0f} %"


def main() -> int:
    from .contract import alone, framework_named

    parser = argparse.ArgumentParser(
        prog="python -m tests.frameworks.caching", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("name")
    framework = framework_named(parser.parse_args().name)
    alone()
    os.environ.update(framework.variables)
    failed = False
    for row in rows(framework):
        print("| " + " | ".join((framework.name, framework.version(), *row)) + " |")
    for name, check in checks(framework, framework.formats):
        try:
            check()
            print(f"{name}: ok", file=sys.stderr)
        except Exception as error:
            failed = True
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
