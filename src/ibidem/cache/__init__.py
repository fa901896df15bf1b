"""The response seat: say "as before" where only tool outputs are seen, one by one.

A gateway or a hook never holds the conversation: it sees an output, passes it on, and can only remember. So the memory
is small, forgets, and is emptied when the host compacts its context: a hint helps only while the model can still see
what it names. Two kinds of repetition are recognised: an output equal byte for byte, and a JSON object that differs
from a remembered one in a few scalar values.

- `OutputMemory`, `OutputMemories`: our own way. A hint names what the model saw; one memory per context.
- `ResponsePipeline`, `DedupCache`, `HintVerbosity`, `render_…`: devboy's texts, sizes and order of steps, exactly. Its
  hints name a call's id, which no model sees.
- `NearRefConfig`, `extract_delta`: when a changed JSON object is worth a near-reference.

Outputs also go stale. A call that changes a file drops the remembered reads of its path, and a call may declare tools
whose answers it makes obsolete; what comes next is sent in full, even if equal. All sizes are UTF-8 bytes.
"""

from .dedup import DedupCache, Fresh, Hint
from .devboy import HintVerbosity, ResponsePipeline, render_near_ref, render_reference_hint
from .memory import MemorySettings, OutputMemory
from .near import DeltaField, NearRefConfig, extract_delta
from .outputs import Emission, ToolKind, content_hash, path_hash
from .partitions import OutputMemories

__all__ = [
    "DedupCache",
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
    "content_hash",
    "extract_delta",
    "path_hash",
    "render_near_ref",
    "render_reference_hint",
]
