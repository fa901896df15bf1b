"""devboy-format-pipeline's deduplication of tool responses, exact.

>>> from ibidem.devboy import DedupCache, Fresh, Hint, ToolKind, content_hash, render_reference_hint
>>> cache = DedupCache.with_capacity(5)
>>> match cache.check(fingerprint := content_hash(body.encode())):
...     case Hint(reference_tool_call_id):
...         send(render_reference_hint(reference_tool_call_id))
...     case Fresh():
...         send(body)
...         cache.insert(fingerprint, "tc_42", ToolKind.OTHER, None, "Bash")

`ResponsePipeline` runs these steps for each response, with invalidation and near-references: layer L0 of the original's
`LayeredPipeline`. For the results in a request, use `ibidem.compact(request, profile="devboy")`. docs/profiles.md has
the original names. `ibidem.cache` has the same objects.
"""

from __future__ import annotations

from .cache import (
    ContentHash,
    DedupCache,
    DedupDecision,
    DeltaField,
    Emission,
    Fresh,
    Hint,
    HintVerbosity,
    NearRefConfig,
    ResponsePipeline,
    ToolKind,
    ToolSettings,
    content_hash,
    extract_delta,
    path_hash,
    render_near_ref_hint,
    render_reference_hint,
    render_reference_hint_with,
)

__all__ = [
    "ContentHash",
    "DedupCache",
    "DedupDecision",
    "DeltaField",
    "Emission",
    "Fresh",
    "Hint",
    "HintVerbosity",
    "NearRefConfig",
    "ResponsePipeline",
    "ToolKind",
    "ToolSettings",
    "content_hash",
    "extract_delta",
    "path_hash",
    "render_near_ref_hint",
    "render_reference_hint",
    "render_reference_hint_with",
]
