"""pi itself with our extension, a real `ibidem proxy` that gives its requests back, and a scripted provider.

python -m pytest tests_slow/test_plugins_pi.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ibidem
from ibidem.testing import Answer, Calls, Says, Seen, Upstream, by_turn

from .conftest import Tally
from .endpoint import PATIENT, PLUGINS, Served, expanded, grows, results, rewritten, served, silent
from .logs import FILE, Place, installed_pi, turns
from .test_logs_pi import APIS, ask, prepared

FORMATS = {
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "openai-completions": "openai-chat",
}
EXTENSION = ("--extension", str(PLUGINS / "pi" / "ibidem.js"))
NOBODY = {"IBIDEM_URL": "http://127.0.0.1:9"}
ANSWERS = (
    Calls(("read", {"path": "a.py"}), says="Let me look."),
    Calls(("bash", {"command": "cat a.py"}), ("read", {"path": "none.py"})),
    Calls(("bash", {"command": "head -n 90 a.py"}), ("bash", {"command": "tail -n 90 a.py"})),
    Calls(("read", {"path": "p.png"}), says="A picture."),
    Calls(("read", {"path": "a.py", "limit": 100})),
    Says("All done."),
    Calls(("bash", {"command": "cat a.py a.py"})),
    Says("Done again."),
)


@pytest.fixture(scope="module")
def programs(client_folder: Path) -> Path:
    return installed_pi(client_folder)


@pytest.fixture
def place(tmp_path: Path, programs: Path) -> Place:
    found = Place(tmp_path, programs)
    (found.project / "a.py").write_text(3 * FILE)
    return found


def spoken(place: Place, upstream: Upstream, api: str, **variables: str) -> list[Seen]:
    """Two questions in a session of its own; the requests that were sent."""
    before = len(turns(upstream))
    ask(place, api, *EXTENSION, "-p", "Look at a.py.", variables=variables)
    ask(place, api, *EXTENSION, "--continue", "-p", "And again.", variables=variables)
    return turns(upstream)[before:]


@pytest.mark.parametrize("api", APIS)
def test_references_are_sent_and_expand_to_what_it_had_sent(
    place: Place, tmp_path: Path, api: str, tally: Tally
) -> None:
    format = FORMATS[api]
    with Upstream(by_turn(ANSWERS)) as upstream, served(tmp_path / "ibidem") as proxy:
        prepared(place, upstream, api)
        plain = spoken(place, upstream, api, **NOBODY)
        sent = spoken(place, upstream, api, IBIDEM_URL=proxy.url, **PATIENT)
        metrics = proxy.metrics()
    assert len(sent) == len(plain) == 8
    assert not any(map(rewritten, plain))
    assert [rewritten(each) for each in sent] == [False, False] + [True] * 6
    grows(sent, format)
    for ours, theirs in zip(sent, plain, strict=True):
        back = expanded(ours, format)
        assert results(back, format) == results(theirs.json, format)
        assert ibidem.compact(back, format=format).request == ours.json, "it is what the library would send"
    assert len(sent[-1].text) < 0.8 * len(plain[-1].text)
    less = 1 - sum(len(each.text) for each in sent) / sum(len(each.text) for each in plain)
    tally(f"pi, {api}", requests=len(sent), rewritten=sum(map(rewritten, sent)), fewer_bytes=f"{less:.0%}")
    assert 'ibidem_compact_requests_total{outcome="rewritten"}' in metrics
    logs = [each.read_text() for each in (place.home / ".pi").rglob("*.jsonl")]
    assert not any("[ibidem " in each for each in logs), "what it keeps is whole"


def test_a_proxy_that_is_killed_in_the_middle(place: Place, tmp_path: Path) -> None:
    talk, killed = by_turn(ANSWERS), list[Served]()

    def answer(seen: Seen) -> Answer:
        if rewritten(seen) and not killed:
            killed.append(proxy)
            proxy.kill()
        return talk(seen)

    api = "anthropic-messages"
    with Upstream(answer) as upstream, served(tmp_path / "ibidem") as proxy:
        prepared(place, upstream, api)
        sent = spoken(place, upstream, api, IBIDEM_URL=proxy.url, **PATIENT)
    assert [rewritten(each) for each in sent] == [False, False, True] + [False] * 5
    assert results(expanded(sent[2], "anthropic"), "anthropic") == results(sent[3].json, "anthropic")[:3]


def test_a_proxy_that_does_not_answer_is_waited_for_no_longer_than_the_patience(place: Place) -> None:
    api = "openai-completions"
    with Upstream(by_turn(ANSWERS)) as upstream, silent() as (url, waited):
        prepared(place, upstream, api)
        sent = spoken(place, upstream, api, IBIDEM_URL=url, IBIDEM_PATIENCE_MS="300")
    print(f"{len(waited)} requests given up on, the last after {max(waited):.2f} s")
    assert len(waited) == len(sent) == 8
    assert not any(map(rewritten, sent))


def test_what_goes_through_the_proxy_anyway_is_left_alone(place: Place, tmp_path: Path) -> None:
    with Upstream(by_turn(ANSWERS)) as upstream, served(tmp_path / "ibidem", upstream.url) as proxy:
        prepared(place, upstream, "anthropic-messages")
        here = {"IBIDEM_URL": proxy.url, **PATIENT}
        settings = place.home / ".pi" / "agent" / "models.json"
        settings.write_text(settings.read_text().replace(upstream.url, f"{proxy.url}/anthropic"))
        ask(place, "anthropic-messages", *EXTENSION, "-p", "Look.", variables=here)
        metrics = proxy.metrics()
    assert rewritten(turns(upstream)[-1]), "by the proxy"
    assert "ibidem_compact_requests_total" not in metrics
