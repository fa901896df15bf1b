"""OpenCode itself with our plugin, a real `ibidem proxy` that gives its requests back, and a scripted provider.

    python -m pytest tests_slow/test_plugins_opencode.py

Without a proxy the plugin does nothing: what OpenCode sends then is what the rewritten requests must expand to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ibidem.testing import Answer, Calls, Says, Seen, Upstream, by_turn

from .conftest import Tally
from .endpoint import PATIENT, PLUGINS, Served, expanded, grows, results, rewritten, served, silent
from .logs import FILE, Place, installed, turns
from .test_logs_opencode import APIS, ask, prepared

FORMATS = {"anthropic": "anthropic", "openai": "openai-responses", "other": "openai-chat"}
SHOWS = {"command": "cat a.py", "description": "Show"}
NOBODY = {"IBIDEM_URL": "http://127.0.0.1:9"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("opencode-ai@1.18.33", "opencode", tmp_path_factory.mktemp("npm"))


@pytest.fixture
def place(tmp_path: Path, programs: Path) -> Place:
    found = Place(tmp_path, programs)
    (found.project / "a.py").write_text(3 * FILE)
    (found.project / ".opencode" / "plugin").mkdir(parents=True)
    shutil.copy(PLUGINS / "opencode" / "ibidem.js", found.project / ".opencode" / "plugin")
    return found


def script(place: Place) -> list[Answer]:
    """Files are read again in other ways; one call fails, one result is a picture, two come at once."""

    def reads(name: str, **more: int) -> tuple[str, dict[str, object]]:
        return ("read", {"filePath": str(place.project / name), **more})

    def runs(command: str) -> tuple[str, dict[str, object]]:
        return ("bash", {"command": command, "description": "Show"})

    return [
        Calls(reads("a.py"), says="Let me look."),
        Calls(runs("cat a.py"), reads("none.py")),
        Calls(runs("head -n 90 a.py"), runs("tail -n 90 a.py")),
        Calls(reads("p.png"), says="A picture."),
        Calls(reads("a.py", limit=100)),
        Says("All done."),
        Calls(runs("cat a.py a.py")),
        Says("Done again."),
    ]


def spoken(place: Place, upstream: Upstream, provider: str, **variables: str) -> list[Seen]:
    """Two questions in a session of its own; the requests that were sent."""
    before = len(turns(upstream))
    ask(place, provider, "Look at a.py.", variables=variables)
    ask(place, provider, "--continue", "And again.", variables=variables)
    return turns(upstream)[before:]


def answering(place: Place) -> Upstream:
    talk = by_turn(script(place))
    return Upstream(lambda seen: talk(seen) if seen.json.get("tools") else Says("A title"))


@pytest.mark.parametrize("provider", APIS)
def test_references_are_sent_and_expand_to_what_it_had_sent(
    place: Place, tmp_path: Path, provider: str, tally: Tally
) -> None:
    format = FORMATS[provider]
    with answering(place) as upstream, served(tmp_path / "ibidem") as proxy:
        prepared(place, upstream, provider)
        plain = spoken(place, upstream, provider, **NOBODY)
        sent = spoken(place, upstream, provider, IBIDEM_URL=proxy.url, **PATIENT)
        metrics = proxy.metrics()
    assert len(sent) == len(plain) == 8
    assert not any(map(rewritten, plain))
    assert [rewritten(each) for each in sent] == [False, False] + [True] * 6
    grows(sent, format)
    for ours, theirs in zip(sent, plain, strict=True):
        assert results(expanded(ours, format), format) == results(theirs.json, format)
    assert len(sent[-1].text) < 0.8 * len(plain[-1].text)
    less = 1 - sum(len(each.text) for each in sent) / sum(len(each.text) for each in plain)
    tally(f"opencode, {provider}", requests=len(sent), rewritten=sum(map(rewritten, sent)), fewer_bytes=f"{less:.0%}")
    assert 'ibidem_compact_requests_total{outcome="rewritten"}' in metrics
    kept = [each for session in place.recorded() for each in session.requests()]
    assert not any("[ibidem " in str(each.body) for each in kept), "what it keeps is whole"


def test_a_proxy_that_is_killed_in_the_middle(place: Place, tmp_path: Path) -> None:
    talk, killed = by_turn(script(place)), list[Served]()

    def answer(seen: Seen) -> Answer:
        if not seen.json.get("tools"):
            return Says("A title")
        if rewritten(seen) and not killed:
            killed.append(proxy)
            proxy.kill()
        return talk(seen)

    with Upstream(answer) as upstream, served(tmp_path / "ibidem") as proxy:
        prepared(place, upstream, "anthropic")
        sent = spoken(place, upstream, "anthropic", IBIDEM_URL=proxy.url, **PATIENT)
    assert [rewritten(each) for each in sent] == [False, False, True] + [False] * 5
    assert results(expanded(sent[2], "anthropic"), "anthropic") == results(sent[3].json, "anthropic")[:3]


def test_a_proxy_that_does_not_answer_is_waited_for_no_longer_than_the_patience(place: Place) -> None:
    with answering(place) as upstream, silent() as (url, waited):
        prepared(place, upstream, "other")
        sent = spoken(place, upstream, "other", IBIDEM_URL=url, IBIDEM_PATIENCE_MS="300")
    print(f"{len(waited)} requests given up on, the last after {max(waited):.2f} s")
    assert len(waited) == len(sent) == 8
    assert not any(map(rewritten, sent))


def test_what_goes_through_the_proxy_anyway_is_left_alone(place: Place, tmp_path: Path) -> None:
    """A provider whose address is the proxy's: nothing is posted, and the proxy rewrites what passes through it."""
    with answering(place) as upstream, served(tmp_path / "ibidem", upstream.url) as proxy:
        prepared(place, upstream, "anthropic")
        config = place.project / "opencode.json"
        config.write_text(config.read_text().replace(upstream.url, f"{proxy.url}/anthropic"))
        ask(place, "anthropic", "Look at a.py.", variables={"IBIDEM_URL": proxy.url, **PATIENT})
        metrics = proxy.metrics()
    assert rewritten(turns(upstream)[-1]), "by the proxy"
    assert "ibidem_compact_requests_total" not in metrics


def test_a_summary_is_made_of_texts_in_full(place: Place, tmp_path: Path) -> None:
    """OpenCode asks for one without tools, once the context is large enough."""
    (place.project / "a.py").write_text(FILE)
    talk = by_turn([script(place)[0], Calls(("bash", SHOWS)), *[Says("Go on.")] * 5])

    def answer(seen: Seen) -> Answer:
        return talk(seen) if seen.json.get("tools") else Says("All was read.")

    with Upstream(answer) as upstream, served(tmp_path / "ibidem") as proxy:
        prepared(place, upstream, "anthropic", context=7000)
        here = {"IBIDEM_URL": proxy.url, **PATIENT}
        for number in range(3):
            ask(place, "anthropic", *["--continue"][:number], f"Look at a.py, part {number}.", variables=here)
    asked = [each for each in upstream.seen if each.method == "POST" and not each.json.get("tools")]
    summaries = [each for each in asked if each.text.count(b"function_3()") > 1]
    assert summaries, [
        (len(each.text), each.text.count(b"function_3()"), bool(each.json.get("tools"))) for each in upstream.seen
    ]
    assert not any(map(rewritten, summaries))
