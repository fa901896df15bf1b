"""Demands of the providers: one named class each.

A rule (`demands.Rule`) names the formats that make its demand and yields a `Violation` for each position that does not
meet it. Rules do not change the request. The engine calls them before it sends a plan that moves more than texts,
`validate` calls them for users, and `strategies.repair` repairs the pairing of calls and results.

`pairing` computes which result answers which call, for rules and for repair.

A new rule is a class and a line in `demands.RULES`, and rows in tests/rules/test_rules.py with the provider's own words
and their source. Formats are named in `formats` alone; other facts about a format come from its dialect.
"""

from .demands import RULES as RULES
from .demands import violations as violations
