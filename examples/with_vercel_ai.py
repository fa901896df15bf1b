"""An agent of Vercel's AI SDK; `ibidem proxy` rewrites its requests. It needs: npm install ai @ai-sdk/anthropic zod"""

import os
import subprocess
import sys

import ibidem
from ibidem.testing import Calls, Says, Upstream, by_turn

AGENT = """
import { generateText, stepCountIs, tool } from "ai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { z } from "zod";

const anthropic = createAnthropic({ baseURL: `${process.argv[1]}/v1`, apiKey: "none" });
const read = tool({
  description: "Reads a file.",
  inputSchema: z.object({ path: z.string() }),
  execute: ({ path }) => Array.from({ length: 80 }, (_, number) => `${path}: line ${number} of a file`).join("\\n"),
});
const asked = { model: anthropic("claude-sonnet-4-5"), tools: { read }, stopWhen: stepCountIs(9) };
console.log((await generateText({ ...asked, prompt: "Look at the files." })).text);
"""
# With a real provider: start `ibidem proxy`, and in your program
#     const anthropic = createAnthropic({ baseURL: "http://127.0.0.1:8123/v1" });

script = by_turn([Calls(("read", {"path": name})) for name in ("a.py", "b.py", "a.py")] + [Says("All is well.")])
with Upstream(script) as upstream:
    command = ["-m", "ibidem.cli", "proxy", "--port", "0", "--store", "memory:"]
    command += ["--upstream", f"anthropic={upstream.url}"]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as proxy:
        url = proxy.stdout.readline().split()[-1]
        folder = os.environ.get("NODE_FOLDER", ".")  # where the packages are
        ran = subprocess.run(["node", "--input-type=module", "-e", AGENT, url], cwd=folder)
        proxy.terminate()
ran.check_returncode()
body = upstream.seen[-1].text
before = len(ibidem.expand(body, format="anthropic"))
print(f"request {len(upstream.seen)}: {len(body):,} bytes on the wire, {before:,} before us")
