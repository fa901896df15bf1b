"""An agent of the Claude Agent SDK, whose requests `ibidem proxy` rewrites. It needs: pip install claude-agent-sdk"""

import asyncio
import subprocess
import sys
import tempfile

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

import ibidem
from ibidem.testing import Calls, Says, Upstream, by_turn

# With a real provider: start `ibidem proxy`, and in your program
#     ClaudeAgentOptions(env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:8123"})


async def work(url: str, folder: str) -> None:
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CONFIG_DIR": folder}
    options = ClaudeAgentOptions(env=env, allowed_tools=["Bash"], cwd=folder, setting_sources=[])
    async for message in query(prompt="Count for me.", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


commands = ("seq -f 'line number %g' 200", "seq -f 'line number %g' 199", "seq -f 'line number %g' 198")
calls = [Calls(("Bash", {"command": command, "description": "Count"})) for command in commands]
talk = by_turn([*calls, Says("Counted.")])
with Upstream(lambda seen: talk(seen) if b'"tools":[{' in seen.body else Says("-")) as upstream:
    command = ["-m", "ibidem.cli", "proxy", "--port", "0", "--store", "memory:"]
    command += ["--upstream", f"anthropic={upstream.url}"]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as proxy:
        try:
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(work(proxy.stdout.readline().split()[-1], folder))
        finally:
            proxy.terminate()
body = [seen.text for seen in upstream.seen if b'"tools":[{' in seen.text][-1]
before = len(ibidem.expand(body, format="anthropic"))
print(f"last request: {len(body):,} bytes on the wire, {before:,} before us")
