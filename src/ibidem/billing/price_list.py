"""The price list that `genai-prices` ships, read without the package.

The package loads what would fetch a newer list and what would check it: 16 MB and a tenth of a second, for data that
is in its wheel. So the module with that data is run with stand-ins for the classes of which it makes its values, and
models are looked up in those as the package looks them up. Where it does that in another way than is known here
(`LOGIC`), the package itself is asked.
"""

from __future__ import annotations

import builtins
import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from operator import methodcaller
from types import ModuleType
from typing import Any, NamedTuple

PACKAGE = "genai_prices"
LOGIC = {
    "types": "df355ac1604139f35b344bce5c536f7cb52dd1ce3008fd8ae6a65af946be66ce",
    "data_snapshot": "e82d19c6a2d0adb3e59767b88a639ea678fe7eeaa1d17e1ec57b192fc6fdeb85",
}
"""The modules of the package that look models up, and the SHA-256 of those that do it as here: of 0.2.0 to 0.2.2."""

Match = Callable[[str], bool]
"""Whether a name, in small letters, is meant."""


class StartDateConstraint:
    __slots__ = ("_start",)

    def __init__(self, start_date: date) -> None:
        self._start = start_date

    def active(self, when: datetime) -> bool:
        return when.date() >= self._start


class TimeOfDateConstraint:
    __slots__ = ("_end", "_start")

    def __init__(self, start_time: time, end_time: time) -> None:
        self._start, self._end = _in_utc(start_time), _in_utc(end_time)

    def active(self, when: datetime) -> bool:
        now = when.timetz()
        if self._end < self._start:  # over midnight
            return now >= self._start or now < self._end
        return self._start <= now < self._end


def _in_utc(at: time) -> time:
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    return datetime.combine(date(1970, 1, 1), at).astimezone(UTC).timetz()


class Tier:
    __slots__ = ("price", "start")

    def __init__(self, start: int, price: Any) -> None:
        self.start, self.price = start, float(price)


class TieredPrices:
    __slots__ = ("base", "tiers")

    def __init__(self, base: Any, tiers: list[Tier]) -> None:
        self.base, self.tiers = float(base), sorted(tiers, key=lambda tier: tier.start)


class ModelPrice:
    """What is asked for here, of all that has a price."""

    __slots__ = ("cache_read_mtok", "cache_write_1h_mtok", "cache_write_mtok", "input_mtok", "output_mtok")
    input_mtok: float | TieredPrices | None

    def __init__(self, **prices: Any) -> None:
        for name in self.__slots__:
            value = prices.get(name)
            setattr(self, name, value if value is None or isinstance(value, TieredPrices) else float(value))


class ConditionalPrice(NamedTuple):
    constraint: StartDateConstraint | TimeOfDateConstraint | None = None
    prices: ModelPrice = ModelPrice()


class ModelInfo:
    __slots__ = ("_prices", "context_window", "id", "match")

    def __init__(
        self,
        *,
        id: str,
        match: Match,
        context_window: int | None = None,
        prices: ModelPrice | Sequence[ConditionalPrice] = (),
        **_: object,
    ) -> None:
        self.id, self.match, self.context_window, self._prices = id, match, context_window, prices

    def get_prices(self, when: datetime) -> ModelPrice:
        """At a time in UTC: the last that applies then, and the first where none does."""
        if isinstance(self._prices, ModelPrice):
            return self._prices
        active = (row.prices for row in reversed(self._prices) if row.constraint is None or row.constraint.active(when))
        return next(active, self._prices[0].prices)


class Provider:
    __slots__ = ("fallbacks", "id", "match", "models")

    def __init__(
        self,
        *,
        id: str,
        model_match: Match | None = None,
        fallback_model_providers: Sequence[str] | None = None,
        models: Sequence[ModelInfo] = (),
        **_: object,
    ) -> None:
        self.id, self.match, self.fallbacks, self.models = id, model_match, fallback_model_providers or (), models

    def model(self, name: str) -> ModelInfo | None:
        return next((model for model in self.models if model.match(name)), None)


class ListedModel(NamedTuple):
    provider: Provider
    model: ModelInfo


class PriceList:
    """Models by the names that they are called by."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = providers
        self._by_id = {provider.id: provider for provider in reversed(providers)}

    def find(self, name: str, house: str | None) -> ListedModel | None:
        """The model of such a name, with a provider or with the first that has such names."""
        name = name.lower()
        provider = self._of_name(name) if house is None else self._by_id.get(house)
        if provider is None:
            return None
        model = self._model(provider, name)
        if model is None and (dashed := _COMPACT_DATE.sub(_dashed, name)) != name:
            model = self._model(provider, dashed)
        return ListedModel(provider, model) if model is not None else None

    def _of_name(self, name: str) -> Provider | None:
        if not name:
            return None
        return next((each for each in self._providers if each.match is not None and each.match(name)), None)

    def _model(self, provider: Provider, name: str) -> ModelInfo | None:
        """Of a provider, or of those whose models it offers as well."""
        asked = (provider, *(self._by_id[each] for each in provider.fallbacks if each in self._by_id))
        return next((model for each in asked if (model := each.model(name)) is not None), None)


_COMPACT_DATE = re.compile(r"(-)(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


def _dashed(found: re.Match[str]) -> str:
    """`-20251211` as `-2025-12-11`, if there is such a day."""
    year, month, day = found.group(2, 3, 4)
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return found.group()
    return f"-{year}-{month}-{day}"


def _nothing(**_: object) -> None:
    """What is not asked for here."""


STAND_INS: dict[str, Any] = {
    **{each.__name__: each for each in (Provider, ModelInfo, ModelPrice, TieredPrices, Tier, ConditionalPrice)},
    **{each.__name__: each for each in (StartDateConstraint, TimeOfDateConstraint)},
    "ClauseStartsWith": lambda starts_with: methodcaller("startswith", starts_with.lower()),
    "ClauseEndsWith": lambda ends_with: methodcaller("endswith", ends_with.lower()),
    "ClauseContains": lambda contains: methodcaller("__contains__", contains.lower()),
    "ClauseEquals": lambda equals: methodcaller("__eq__", equals.lower()),
    "ClauseRegex": lambda regex: lambda name: bool(re.search(regex, name)),
    "ClauseOr": lambda or_: lambda name: any(match(name) for match in or_),
    "ClauseAnd": lambda and_: lambda name: all(match(name) for match in and_),
    **dict.fromkeys(("ArrayMatch", "PriceVariant", "UsageExtractor", "UsageExtractorMapping"), _nothing),
}


def shipped() -> PriceList | None:
    """The list in the wheel; None if the package has to be asked, because of how it is installed or what it says."""
    with _loading:
        if not _known:
            _known.append(_read())
    return _known[0]


_known: list[PriceList | None] = []
_loading = threading.Lock()


def _read() -> PriceList | None:
    try:
        found = find_spec(PACKAGE)
        places = list(found.submodule_search_locations or ()) if found else []
        if any(_digest(_module(name, places)) != digest for name, digest in LOGIC.items()):
            return None
        return PriceList(_providers(_module("data", places)))
    except Exception:  # whatever it is, the package tells
        return None


def _module(name: str, places: list[str]) -> ModuleSpec:
    found = PathFinder.find_spec(f"{PACKAGE}.{name}", places)
    if found is None:
        raise ImportError(name)
    return found


def _digest(module: ModuleSpec) -> str:
    loader: Any = module.loader
    return hashlib.sha256(loader.get_data(module.origin)).hexdigest()


def _providers(module: ModuleSpec) -> list[Provider]:
    loader: Any = module.loader
    classes = ModuleType("types")
    vars(classes).update(STAND_INS, __all__=list(STAND_INS))

    def importing(name: str, *others: Any) -> Any:
        return classes if name == "types" else __import__(name, *others)

    names: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": importing}, "__name__": module.name}
    exec(loader.get_code(module.name), names)
    found: list[Provider] = names["providers"]
    return found
