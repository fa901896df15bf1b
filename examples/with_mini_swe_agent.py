"""mini-swe-agent: a model class of the same kind, which sends less."""

import tempfile
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment

import ibidem
from ibidem.adapters.mini_swe_agent import IbidemLitellmModel
from ibidem.testing import Calls, Upstream

CODE = "\n".join(f"def function_{number}(): return {number}" for number in range(100))
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo It counts."
COMMANDS = ("cat a.py", "cat a.py", SUBMIT)

with (
    Upstream([Calls(("bash", {"command": command})) for command in COMMANDS]) as provider,
    tempfile.TemporaryDirectory() as folder,
):
    Path(folder, "a.py").write_text(CODE)
    # With a real provider, and its key in the environment:
    # model = IbidemLitellmModel(model_name="anthropic/claude-sonnet-4-5", set_cache_control="default_end")
    endpoint = {"api_base": f"{provider.url}/v1", "api_key": "any"}
    model = IbidemLitellmModel(model_name="openai/gpt-4.1", model_kwargs=endpoint, cost_tracking="ignore_errors")
    agent = DefaultAgent(
        model, LocalEnvironment(cwd=folder), system_template="You use bash.", instance_template="{{task}}"
    )
    print(agent.run("What does a.py do?")["submission"])
    body = provider.seen[-1].text

before = len(ibidem.expand(body, format="openai-chat"))
print(f"request {len(provider.seen)}: {len(body):,} bytes on the wire, {before:,} before us")
