"""The price list without its package: the same answers, none of the package loaded, and the package where in doubt."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices.data import providers
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot

from ibidem.billing import price_list, prices
from ibidem.billing.price_list import PriceList, shipped
from ibidem.billing.prices import REGIONAL

DAYS = [datetime(2023, 1, 1, tzinfo=UTC) + timedelta(hours=173 * number) for number in range(300)]
"""Of some years, and at any hour."""


@pytest.fixture(scope="module")
def listed() -> PriceList:
    found = shipped()
    assert found is not None, "the package looks models up in another way than LOGIC says: see what has changed there"
    return found


def clauses(match: Any) -> Iterator[str]:
    """All that a rule for names is made of."""
    for value in vars(match).values():
        if isinstance(value, str):
            yield value
        else:
            for each in value:
                yield from clauses(each)


def names() -> set[str]:
    models = [(provider, model) for provider in providers for model in provider.models]
    found = {model.id for _, model in models}
    found |= {f"{provider.id}/{model.id}" for provider, model in models}
    endings = cycle(("-20251211", "-20250231", "-v1:0", "x"))
    found |= {f"{name}{next(endings)}" for name in sorted(found)[::3]}
    found |= {name.upper() for name in sorted(found)[::7]} | {name[:-1] for name in sorted(found)[::7]}
    for _, model in models:
        found.update(clauses(model.match))
    return found | {"", " ", "/", "x" * 10_000, "\ud800", "İclaude-opus-4-5"}


def asked(name: str, house: str | None) -> Any:
    try:
        return genai_prices.calc_price(genai_prices.Usage(), name, provider_id=house)
    except LookupError:
        return None


@pytest.mark.parametrize("house", [None, REGIONAL])
def test_whatever_the_package_finds_is_found(listed: PriceList, house: str | None) -> None:
    found = 0
    for name in names():
        theirs, ours = asked(name, house), listed.find(name, house)
        assert (theirs is None) == (ours is None), name
        if theirs is None or ours is None:
            continue
        found += 1
        assert (ours.provider.id, ours.model.id) == (theirs.provider.id, theirs.model.id), name
        assert ours.model.context_window == theirs.model.context_window
    assert found > 100


def test_every_model_costs_on_any_day_what_the_package_says(listed: PriceList) -> None:
    models = {model.id for provider in providers for model in provider.models}
    dated = 0
    for name in models:
        theirs, ours = asked(name, None), listed.find(name, None)
        if theirs is None or ours is None:
            continue
        days = DAYS if isinstance(theirs.model.prices, list) else DAYS[:1]
        dated += len(days) > 1
        for day in days:
            theirs_then, ours_then = theirs.model.get_prices(day), ours.model.get_prices(day)
            assert (getattr(theirs_then, "input_mtok", None) is None) == (ours_then.input_mtok is None)
            assert prices._tiers(ours_then) == prices._tiers(theirs_then), (name, day)
    assert dated > 5


def test_no_part_of_the_package_is_loaded_for_a_price() -> None:
    code = (
        "import sys; from ibidem.billing.prices import Prices\n"
        "print([Prices().of(name, 'anthropic').assumed for name in ('claude-opus-4-5', 'house-model-7')])\n"
        "print(*sorted({'genai_prices', 'pydantic', 'httpx2'} & sys.modules.keys()))"
    )
    shown = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True, timeout=60)
    assert shown == "[False, True]\n\n"


# ── the package, where in doubt ─────────────────────────────────────────────────────────────────────────────────────


def copied(folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: str) -> None:
    """Has the package found there, with other modules; an empty one is missing."""
    package = folder / price_list.PACKAGE
    package.mkdir()
    for name in ("__init__", "data", *price_list.LOGIC):
        text = Path(genai_prices.__file__).with_name(f"{name}.py").read_bytes() if name != "data" else b"providers = []"
        text = changed[name].encode() if name in changed else text
        if text:
            (package / f"{name}.py").write_bytes(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, price_list.PACKAGE)


def test_a_list_whose_package_is_as_known_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(tmp_path, monkeypatch)
    found = price_list._read()
    assert found is not None
    assert found.find("claude-opus-4-5", None) is None, "that list is empty"


DOUBTS = {
    "models are looked up in another way": {"types": "class Provider: pass"},
    "by another module": {"data_snapshot": ""},
    "there is no data": {"data": ""},
    "the data cannot be read": {"data": "providers = ["},
    "it is called otherwise": {"data": "vendors = []"},
    "it is made of something new": {"data": "from .types import *\nproviders = [Vendor(id='x')]"},
    "it needs another module": {"data": "from .shared import providers"},
    "it fails": {"data": "raise OSError"},
}


@pytest.mark.parametrize("case", DOUBTS)
def test_in_doubt_the_package_is_asked(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(tmp_path, monkeypatch, **DOUBTS[case])
    assert price_list._read() is None


def test_where_the_list_cannot_be_read_prices_are_those_of_the_package() -> None:
    code = (
        "import sys; from ibidem.billing import price_list\n"
        "price_list.LOGIC['types'] = 'another'\n"
        "from ibidem.billing.prices import Prices\n"
        "print(Prices().of('claude-opus-4-5', 'anthropic', 1.78e9).tiers, 'genai_prices' in sys.modules)"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert shown == f"{prices.Prices().of('claude-opus-4-5', 'anthropic', 1.78e9).tiers} True\n"


def test_a_package_that_was_given_a_newer_list_is_asked_for_it() -> None:
    assert price_list.PACKAGE in sys.modules
    set_custom_snapshot(DataSnapshot([], from_auto_update=True))
    try:
        assert prices._looked_up.__wrapped__("claude-opus-4-5", None) is None
    finally:
        set_custom_snapshot(None)
    assert prices._looked_up.__wrapped__("claude-opus-4-5", None) is not None
