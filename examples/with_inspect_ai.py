"""Inspect: one epoch as it is and one rewritten, in one evaluation. Needs: pip install inspect_ai openai"""

import tempfile

import inspect_ai
from inspect_ai.dataset import Sample
from inspect_ai.hooks import hooks
from inspect_ai.model import get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolDef

from ibidem.adapters.inspect_ai import IbidemHooks
from ibidem.testing import Calls, Says, Upstream, by_turn

READS = Calls(("read", {"path": "app.py"}))


@hooks(name="ibidem", description="Nothing is said twice.")
class Rewriting(IbidemHooks):
    def rewrites(self, data, sample):
        return sample is not None and sample.epoch == 2


async def read(path: str) -> str:
    return "\n".join(f"def function_{number}(): ...  # {path}" for number in range(60))


with Upstream(by_turn([READS, READS, Says("Sixty functions.")])) as provider, tempfile.TemporaryDirectory() as logs:
    model = get_model("openai/gpt-4.1", base_url=f"{provider.url}/v1", api_key="any", responses_api=False)
    # With a real provider, and OPENAI_API_KEY set:
    # model = "openai/gpt-4.1"
    tool = ToolDef(read, name="read", description="Reads a file.", parameters={"path": "A file."})
    task = inspect_ai.Task(
        dataset=[Sample(input="What is in app.py?")], solver=[use_tools(tool.as_tool()), generate()], epochs=2
    )
    (log,) = inspect_ai.eval(task, model=model, display="none", log_dir=logs)
    print(log.samples[0].output.completion)
    before, sent = sorted((len(seen.text) for seen in provider.seen), reverse=True)[:2]
    print(f"request 3: {sent:,} bytes on the wire, {before:,} before us")
