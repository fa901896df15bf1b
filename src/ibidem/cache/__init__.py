"""Deduplicate tool outputs where they are produced: in a gateway, a hook or a host that sees single outputs.

Such a program never has the conversation. It sees an output, forwards it, and can only store it. So the cache is small,
entries expire, and it is emptied when the host compacts its context: a hint only helps while the model can see the
output that it names. Two kinds of repeats count: equal bytes, and a JSON object that differs from a stored one in a few
scalar values.

- `OutputMemory`, `OutputMemories`: Ibidem's own hints, which name text that the model saw. One memory per context.
- `DedupCache`, `ResponsePipeline`, `render_…`, `extract_delta`: devboy's, exact; `ibidem.devboy` has its names.

Outputs become stale. A call that changes a file removes the stored reads of its path, and a call may declare tools
whose outputs it makes obsolete. The next output is then sent in full, even if equal. All sizes are UTF-8 bytes.
"""

from .dedup import ContentHash, DedupCache, DedupDecision, Fresh, Hint
from .devboy import HintVerbosity, ResponsePipeline, ToolSettings, render_reference_hint, render_reference_hint_with
from .near_references import DeltaField, NearRefConfig, extract_delta, render_near_ref_hint
from .output_memory import MemorySettings, OutputMemories, OutputMemory
from .outputs import Emission, ToolKind, content_hash, path_hash

render_near_ref = render_near_ref_hint
"""The name of 0.1 for `render_near_ref_hint`."""

__all__ = [
    "ContentHash",
    "DedupCache",
    "DedupDecision",
    "DeltaField",
    "Emission",
    "Fresh",
    "Hint",
    "HintVerbosity",
    "MemorySettings",
    "NearRefConfig",
    "OutputMemories",
    "OutputMemory",
    "ResponsePipeline",
    "ToolKind",
    "ToolSettings",
    "content_hash",
    "extract_delta",
    "path_hash",
    "render_near_ref",
    "render_near_ref_hint",
    "render_reference_hint",
    "render_reference_hint_with",
]
