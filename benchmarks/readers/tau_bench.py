"""tau-bench and tau2: many conversations of a service agent with a simulated user in one file.

tau-bench has a list of `{task_id, trial, traj}`, tau2 one object of `{info, simulations}` or, in newer releases, a file
for each simulation. The user of tau2 has tools too: what they call and get back is not in the agent's context. The
greeting a conversation begins with is no answer of the model.

What the logs do not tell: the tools; with tau2 the exact system prompt; with tau-bench the model, times and usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ibidem.recordings.chat_builder import ChatBuilder
from ibidem.recordings.log_file import Log, parse_timestamp
from ibidem.recordings.reader import Reader
from ibidem.recordings.recording import Json, Recording
from ibidem.recordings.usage_fields import first_name, litellm_usage

AGENT = "tau-bench"


def _knows(row: Json) -> bool:
    simulations = row.get("simulations")
    if isinstance(simulations, list):
        return any(_is_simulation(each) for each in simulations)
    return _is_simulation(row)


def _is_simulation(value: Any) -> bool:
    if not isinstance(value, dict) or "task_id" not in value:
        return False
    return isinstance(value.get("traj"), list) or (
        isinstance(value.get("messages"), list) and ("trial" in value or "termination_reason" in value)
    )


class _Talk:
    def __init__(self, model: str) -> None:
        self.chat = ChatBuilder()
        self._model = model
        self._latest: float | None = None

    def message(self, message: Json) -> None:
        role, content = message["role"], message.get("content")
        at = parse_timestamp(message.get("timestamp"))
        if role == "assistant":
            self._answer(message, at)
            return
        if role == "tool":
            for each in message.get("tool_messages") or [message]:
                if each.get("requestor") != "user":
                    call = each.get("tool_call_id") or each["id"]
                    self.chat.add_result(call, each.get("content"), each.get("name"))
                    self._latest = at or parse_timestamp(each.get("timestamp"))
        elif content is not None and not message.get("tool_calls"):
            self.chat.add_message(role, content)
            self._latest = at

    def _answer(self, message: Json, at: float | None) -> None:
        """The whole response, where it was kept, has more counts than the note of its usage."""
        raw = message.get("raw_data")
        response = raw if isinstance(raw, dict) else {}
        self.chat.add_response(
            message.get("content"),
            message.get("tool_calls"),
            model=first_name(response.get("model"), self._model),
            at=self._latest,
            answered_at=at,
            usage=litellm_usage(response.get("usage")) or litellm_usage(message.get("usage")),
        )


def _read(log: Log) -> Iterator[Recording]:
    for line, row in log.rows:
        if not _knows(row):
            continue
        model = domain = ""
        with log.skip_bad_line(line):
            info = row.get("info") or {}
            model = str((info.get("agent_info") or {}).get("llm") or "")
            domain = str((info.get("environment_info") or {}).get("domain_name") or "")
        sessions: list[Recording] = []
        for simulation in row["simulations"] if isinstance(row.get("simulations"), list) else [row]:
            with log.skip_bad_line(line):
                sessions.append(_session(log, line, simulation, model, domain))
        yield from sessions


def _session(log: Log, line: int, simulation: Json, model: str, domain: str) -> Recording:
    talk = _Talk(model)
    for message in simulation["traj"] if "traj" in simulation else simulation["messages"]:
        with log.skip_bad_line(line):
            talk.message(message)
    trial = simulation.get("trial")
    task = str(simulation["task_id"])
    name = task + ("" if trial is None else f" trial {trial}")
    id_ = first_name(simulation.get("id"), task)
    return Recording(AGENT, "openai-chat", [talk.chat.finish()], name=name, id=id_, project=domain)


READER = Reader(AGENT, _knows, _read)
