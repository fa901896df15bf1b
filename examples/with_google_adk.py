"""Google's ADK with Ibidem as a plugin, with a mock provider: the same file is read twice, and sent once."""

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

import ibidem
from ibidem.adapters.google_adk import IbidemPlugin
from ibidem.testing import Calls, Says, Upstream

READ_APP, READ_TESTS = Calls(("read", {"path": "app.py"})), Calls(("read", {"path": "tests.py"}))


def read(path: str) -> str:
    """Read a file."""
    return "\n".join(f"{path}: value_{number} = compute({number})" for number in range(60))


with Upstream([READ_APP, READ_TESTS, READ_APP, Says("The file is as it was.")]) as provider:
    model = Gemini(model="gemini-3-pro-preview", base_url=provider.url, client_kwargs={"api_key": "any"})
    # With the real one, and GOOGLE_API_KEY in the environment:
    # model = "gemini-3-pro-preview"
    agent = LlmAgent(name="reader", model=model, tools=[read])
    app = App(name="example", root_agent=agent, plugins=[IbidemPlugin()])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    said = types.Content(role="user", parts=[types.Part(text="Look at app.py, then at it again.")])
    for event in runner.run(user_id="me", session_id="one", new_message=said):
        if event.is_final_response():
            print(event.content.parts[0].text)

    for number, request in enumerate(provider.seen, 1):
        before = len(ibidem.expand(request.text, format="gemini"))
        print(f"request {number}: {len(request.text):,} bytes on the wire, {before:,} before us")
