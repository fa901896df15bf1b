"""Prices of models, and the cache pricing that follows from them.

Prices come from the data in the `genai-prices` package, without a download. They are dollars per token here, and
dollars per million tokens in the user's price file. That package has no cache rules; they are in `cache_rules`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from ..errors import IbidemError
from ..model import type_name
from .cache_rules import PAID_CACHING, USUAL_CACHING, CacheRules, bare_name, cache_rules_for, conservative_rules
from .revision_budget import CachePricing
from .thinking_size import keeps_thinking, signs_thinking
from .usage import Usage

PER_MILLION = 1e6
MAX_KNOWN = 4096
"""Maximum number of cached prices: clients can send any number of model names."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars per token."""

    fresh: float
    read: float
    write: float
    write_1h: float
    output: float = 0.0

    def input_cost(self, usage: Usage) -> float:
        """Compute dollars for the input tokens of a request."""
        write_cost = usage.written * self.write + usage.written_1h * self.write_1h
        return usage.fresh * self.fresh + usage.read * self.read + write_cost


REGIONAL = "aws"
"""The provider that names models by region and vendor, as in `us.anthropic.claude-sonnet-4-5-…`. `genai-prices` finds
its models only if the provider is given."""

DEFAULT_MODELS: dict[str, str] = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
"""Wire format → model whose prices apply to unknown models: neither the most expensive nor the cheapest one."""


@dataclass(frozen=True, slots=True)
class Price:
    """Prices and cache rules of one model."""

    model: str
    """Its name in the price list."""
    tiers: tuple[tuple[int, Rates], ...]
    """Input tokens, and the rates of requests with more tokens than that. They apply to the whole request."""
    caching: CacheRules
    provider: str = ""
    window: int | None = None
    """Context window in input tokens; None if unknown."""
    preserved_thinking: bool = False
    keeps_thinking: bool = True
    """As in `Economy`, by the model's name."""
    assumed: bool = False
    """The model is not in the price list, so these are the prices of another model."""

    def rates(self, size: float) -> Rates:
        """Look up the rates for a request with this number of input tokens."""
        match = self.tiers[0][1]
        for start, rates in self.tiers[1:]:
            if size > start:
                match = rates
        return match


def cache_pricing_for(price: Price, long: bool = False) -> CachePricing:
    """Make the cache pricing for revisions. `long`: the requested TTL is an hour."""
    rates, caching = price.tiers[0][1], price.caching
    fresh = rates.fresh or 1.0
    brief = (rates.write / fresh, caching.lifetime)
    hour = (rates.write_1h / fresh, caching.lifetime_1h)
    write, lifetime = hour if long else brief
    return CachePricing(
        read=rates.read / fresh,
        write=write,
        lifetime=lifetime,
        brief=brief,
        hour=hour,
        forgotten=caching.forgotten,
        preserved_thinking=price.preserved_thinking,
        keeps_thinking=price.keeps_thinking,
        tiers=tuple((start, tier.fresh / fresh) for start, tier in price.tiers[1:]),
        window=price.window,
    )


class Prices:
    """Price lookup: first in the user's table, then in the price list. Results are cached."""

    def __init__(self, own: Mapping[str, Price] | None = None, model: str | None = None) -> None:
        self.own = dict(own or {})
        self.model = model
        """Model whose prices apply to all requests; None to price each request as its own model."""
        self._known: dict[tuple[str, str, int | None], Price] = {}

    def of(self, model: str, format: str, at: float | None = None) -> Price:
        """Look up the price of a model at a Unix time (default: today). Unknown models get a default model's price."""
        day = int(at // 86400) if at is not None and -6e10 < at < 1e11 else None  # years that a calendar has
        key = (model, format, day)
        if key not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            price = self._find_price(*key)
            signs, keeps = signs_thinking(model or price.model), keeps_thinking(model or price.model)
            self._known[key] = replace(price, preserved_thinking=signs, keeps_thinking=keeps)
        return self._known[key]

    def _find_price(self, model: str, format: str, day: int | None) -> Price:
        name = model if self.model is None else self.model
        if name in self.own:
            return self.own[name]
        price = _list_price(name, day) if name else None
        if price is None and self.model is not None:
            raise IbidemError(f"model {name!r} is not in the price list: name another one or give its prices in a file")
        return price or _assume_price(_default_price(format, day), name)

    def check(self) -> None:
        """Raise IbidemError if the model for all requests has no known price."""
        if self.model is not None:
            self.of(self.model, "")


def _assume_price(price: Price, name: str) -> Price:
    """Use the price of another model for an unknown one, with the cache rules for its own name."""
    return replace(
        price, assumed=True, caching=conservative_rules(cache_rules_for(price.provider, name or price.model), name)
    )


def _default_price(format: str, day: int | None) -> Price:
    model = DEFAULT_MODELS.get(format) or next(iter(DEFAULT_MODELS.values()))  # a log may call its format anything
    price = _list_price(model, day)
    assert price is not None, model
    return price


@lru_cache(4096)
def _list_price(model: str, day: int | None) -> Price | None:
    when = datetime.now(UTC) if day is None else datetime.fromtimestamp(day * 86400, UTC)
    last = model.rpartition("/")[2]  # for names such as `openrouter/vendor/model`
    for name, house in dict.fromkeys(((model, None), (last, None), (last, REGIONAL), (bare_name(last), None))):
        match = _find_model(name, house)
        price = match and match.model.get_prices(when)
        if match and getattr(price, "input_mtok", None) is not None:
            caching = cache_rules_for(match.provider.id, match.model.id)
            return Price(match.model.id, _price_tiers(price), caching, match.provider.id, match.model.context_window)
    return None


@lru_cache(4096)
def _find_model(name: str, house: str | None) -> Any:
    """Find a model and its provider in the price list; None if it is unknown. Its price depends on the day."""
    import genai_prices  # takes a seventh of a second and 20 MB, so it is imported on first use

    try:
        return genai_prices.calc_price(genai_prices.Usage(), name, provider_id=house)
    except (LookupError, ValueError):
        return None


def _price_tiers(price: Any) -> tuple[tuple[int, Rates], ...]:
    names = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok", "output_mtok")
    prices = [getattr(price, name, None) for name in names]
    starts = {tier.start for value in prices for tier in getattr(value, "tiers", ())}
    return tuple(
        (start, _make_rates(*(_tier_price(value, start) for value in prices))) for start in (0, *sorted(starts))
    )


def _tier_price(value: Any, start: int) -> float | None:
    """Look up a price in the tier from `start` on. The list has plain numbers and tiers."""
    if value is None or not hasattr(value, "tiers"):
        return None if value is None else float(value)
    amount = value.base
    for tier in value.tiers:
        if tier.start <= start:
            amount = tier.price
    return float(amount)


def _make_rates(
    fresh: float | None, read: float | None, write: float | None, write_1h: float | None, output: float | None
) -> Rates:
    """Make rates from dollars per million tokens. Missing cache prices are those of fresh input, without discount or
    surcharge. A missing output price is zero."""
    fresh = fresh or 0.0
    write = fresh if write is None else write
    read, write_1h = (fresh if read is None else read), (write if write_1h is None else write_1h)
    return Rates(*(each / PER_MILLION for each in (fresh, read, write, write_1h, output or 0.0)))


PRICE_FIELDS = ("input", "read", "write", "write_1h", "output")


def own_prices(text: str | bytes, where: str) -> dict[str, Price]:
    """Read the user's prices from JSON, in dollars per million tokens.

    Example: `{"my-model": {"input": 3, "read": 0.3, "write": 3.75, "write_1h": 6, "output": 15}}`.
    Other fields: `lifetime` (TTL in seconds) and `minimum` (tokens) of the cache, and `tiers`, a list of objects with
    the same prices and `from` (input tokens). Raises IbidemError.
    """
    try:
        models = json.loads(text)
    except RecursionError:
        raise IbidemError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise IbidemError(f"{where}: not valid JSON ({error}): correct it there") from None
    if not isinstance(models, dict) or not models:
        raise IbidemError(f'{where}: an object of models is expected, such as {{"my-model": {{"input": 3}}}}')
    return {name: _read_own_price(name, fields, f"{where}: {name}") for name, fields in models.items()}


def _read_own_price(name: str, fields: Any, where: str) -> Price:
    if not isinstance(fields, dict):
        raise IbidemError(f"{where}: must be an object with a field 'input', not {type_name(fields)}")
    unknown = fields.keys() - {*PRICE_FIELDS, "tiers", "lifetime", "minimum"}
    if unknown:
        raise IbidemError(f"{where}: unknown field {min(unknown)!r}: use {', '.join((*PRICE_FIELDS, 'tiers'))}")
    tiers = fields.get("tiers", [])
    if not isinstance(tiers, list):
        raise IbidemError(f"{where}: 'tiers' must be a list, not {type_name(tiers)}")
    if "input" not in fields:
        raise IbidemError(f"{where}: the field 'input' is missing: dollars per million tokens")
    base = {key: _read_number(fields, key, where) for key in PRICE_FIELDS if key in fields}
    rows = [(0, _make_rates(*(base.get(key) for key in PRICE_FIELDS)))]
    for tier in tiers:
        if not isinstance(tier, dict) or "from" not in tier:
            raise IbidemError(f"{where}: a tier is an object with a field 'from': input tokens")
        if wrong := tier.keys() - {*PRICE_FIELDS, "from"}:
            raise IbidemError(
                f"{where}: a tier has an unknown field {min(wrong)!r}: use from, {', '.join(PRICE_FIELDS)}"
            )
        own = {**base, **{key: _read_number(tier, key, where) for key in PRICE_FIELDS if key in tier}}
        rows.append((int(_read_number(tier, "from", where)), _make_rates(*(own.get(key) for key in PRICE_FIELDS))))
    rules = PAID_CACHING if "write" in fields else USUAL_CACHING
    if "lifetime" in fields:
        rules = replace(rules, lifetime=_read_number(fields, "lifetime", where), forgotten=None)
    minimum = int(_read_number(fields, "minimum", where)) if "minimum" in fields else rules.minimum
    return Price(name, tuple(sorted(rows, key=lambda row: row[0])), replace(rules, minimum=minimum))


def _read_number(fields: Mapping[str, Any], key: str, where: str) -> float:
    value = fields[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e300:
        raise IbidemError(f"{where}: {key!r} must be a number, zero or more")
    return float(value)
