"""Anthropic's SDK in a loop as its users write it: the API itself, Bedrock (signed requests), and Vertex."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import ibidem
from ibidem.testing import Answer, Calls, Fails, Says, Seen, Upstream, by_turn, conv

from . import bedrock
from .caching import marks_refused
from .framework import DESCRIPTION, KEY, Framework, Ran, Task
from .scenario import SCRIPT, Files

TOOL = {
    "name": "read",
    "description": DESCRIPTION,
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


class Anthropic(Framework):
    name = "anthropic"
    package = "anthropic"
    requires = ("anthropic[bedrock,vertex]>=2.8",)
    seam = "Anthropic(middleware=[…])"
    formats = ("anthropic", "bedrock", "vertex")
    example = "with_anthropic.py"
    variables: ClassVar = {"AWS_EC2_METADATA_DISABLED": "true"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.anthropic import middleware

        return middleware(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.anthropic import middleware

        return middleware(cache="auto")

    def run(self, task: Task) -> Ran:
        chat = Chat(task)
        with _place(task.format, task.url) as url:
            return asyncio.run(chat.arun(url)) if task.mode == "async" else chat.run(url)

    def read_wire(self, body: Any, format: str) -> tuple[Any, str]:
        return body, "anthropic"

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "every way to ask": ways,
            "what was counted is heard of streams": counted,
            "what is refused is sent as it was": refused,
            "marks that are refused": lambda: marks_refused(self, *self.formats),
            "other requests pass": others,
            "a thread that the provider keeps": thread,
            "Bedrock checks signatures": bedrock.checks_signatures,
        }


@contextlib.contextmanager
def _place(format: str, url: str) -> Iterator[str]:
    """Where a provider is asked in this format."""
    if format == "anthropic":
        yield url
    else:
        with bedrock.Cloud(url) as cloud:
            yield cloud.url


def _client(task: Task, url: str, asynchronous: bool) -> Any:
    import anthropic

    given: dict[str, Any] = {"base_url": url} | ({"middleware": [task.adapter]} if task.adapter is not None else {})
    match task.format:
        case "anthropic":
            kind: Any = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
            return kind(api_key=KEY, **given)
        case "bedrock":
            kind = anthropic.AsyncAnthropicBedrock if asynchronous else anthropic.AnthropicBedrock
            keys = {"aws_access_key": bedrock.ACCESS_KEY, "aws_secret_key": bedrock.SECRET_KEY}
            return kind(aws_region=bedrock.REGION, **keys, **given)
        case _:
            kind = anthropic.AsyncAnthropicVertex if asynchronous else anthropic.AnthropicVertex
            return kind(region="us-east5", project_id=bedrock.PROJECT, access_token=KEY, **given)


class Chat:
    """The list that a user keeps, and one turn after the other."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.messages: list[Any] = []

    def run(self, url: str) -> Ran:
        texts = []
        with _client(self.task, url, asynchronous=False) as client:
            for prompt in self.task.prompts:
                self._ask(prompt)
                while self._goes_on(message := self._turn(client)):
                    pass
                texts.append(message.content[-1].text)
        return Ran(texts, _plain(self.messages))

    async def arun(self, url: str) -> Ran:
        texts = []
        async with _client(self.task, url, asynchronous=True) as client:
            for prompt in self.task.prompts:
                self._ask(prompt)
                while self._goes_on(message := await client.messages.create(**self._body())):
                    pass
                texts.append(message.content[-1].text)
        return Ran(texts, _plain(self.messages))

    def _turn(self, client: Any) -> Any:
        if self.task.mode == "sync":
            return client.messages.create(**self._body())
        with client.messages.stream(**self._body()) as stream:
            return stream.get_final_message()

    def _body(self) -> dict[str, Any]:
        model = bedrock.MODEL if self.task.format == "bedrock" else "claude-sonnet-4-6"
        system = f"Be careful.{self.task.system}"
        return {"model": model, "max_tokens": 1000, "system": system, "tools": [TOOL], "messages": self.messages}

    def _ask(self, prompt: str) -> None:
        said: list[Any] = [{"type": "text", "text": prompt}]
        if not self.messages and self.task.image is not None:
            data = base64.b64encode(self.task.image).decode()
            said.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
        self.messages.append({"role": "user", "content": said})

    def _goes_on(self, message: Any) -> bool:
        self.messages.append({"role": "assistant", "content": message.content})
        results = [self._result(block) for block in message.content if block.type == "tool_use"]
        if results:
            self.messages.append({"role": "user", "content": results})
        return bool(results)

    def _result(self, call: Any) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": call.id}
        try:
            return {**result, "content": self.task.read(call.input["path"])}
        except Exception as error:
            return {**result, "content": repr(error), "is_error": True}


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _plain(inside) for key, inside in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


# ── beside the contract ─────────────────────────────────────────────────────────────────────────────────────────────


def conversation(format: str = "anthropic") -> dict[str, Any]:
    """A request in which a result stands twice."""
    text = Files()("a.py")
    calls = {number: ("read", {"path": "a.py"}) for number in "12"}
    body = conv("u:Look", "a>1", f"r1:{text}", "a>2", f"r2:{text}", calls=calls)
    return {**body, "model": bedrock.MODEL if format == "bedrock" else "claude-sonnet-4-6", "max_tokens": 1000}


def ways() -> None:
    """Raw answers, answers that the caller reads, streams of all kinds: each gives what was said."""
    for format in FRAMEWORK.formats:
        with Upstream(lambda _: Says("said")) as upstream, _place(format, upstream.url) as url:
            adapter = FRAMEWORK.adapter(format)
            task = Task(url, format, "", (), str, adapter)
            with _client(task, url, asynchronous=False) as client:
                said = list(_asked(client, conversation(format)))
            said += asyncio.run(_asked_async(task, url))
            assert said == ["said"] * 8, said
            assert all(ibidem.expand(each.json, format="anthropic") != each.json for each in upstream.seen)


def _asked(client: Any, body: dict[str, Any]) -> Iterator[str]:
    yield client.messages.with_raw_response.create(**body).parse().content[0].text
    with client.messages.with_streaming_response.create(**body) as response:
        yield response.parse().content[0].text
    yield "".join(_deltas(client.messages.create(**body, stream=True)))
    yield "".join(_deltas(client.messages.with_raw_response.create(**body, stream=True).parse()))
    with client.messages.stream(**body) as stream:
        yield "".join(stream.text_stream)
    with client.messages.stream(**body) as stream:
        next(iter(stream))  # and nobody listens any more
    yield client.beta.messages.create(**body).content[0].text


def _deltas(events: Any) -> Iterator[str]:
    return (getattr(event.delta, "text", "") for event in events if event.type == "content_block_delta")


async def _asked_async(task: Task, url: str) -> list[str]:
    body = conversation(task.format)
    async with _client(task, url, asynchronous=True) as client:
        async with client.messages.stream(**body) as stream:
            text = "".join([text async for text in stream.text_stream])
        events = [event async for event in await client.messages.create(**body, stream=True)]
        return [text, "".join(_deltas(events))]


def counted() -> None:
    for format in FRAMEWORK.formats:
        told: list[int] = []
        with Upstream(by_turn(SCRIPT)) as upstream, _place(format, upstream.url) as url:
            adapter = FRAMEWORK.adapter(format)
            adapter._seat.answered = lambda _, context, cached, told=told: told.append(context)
            Chat(Task(url, format, "stream", ("look",), Files(), adapter)).run(url)
            asyncio.run(_asked_async(Task(url, format, "", (), str, adapter), url))
        assert len(told) == len(upstream.seen), (format, told)
        assert all(told)


def refused() -> None:
    """Whatever a provider has against markers, it gets the conversation without them, and from then on at once."""

    def picky(seen: Seen) -> Answer:
        return Fails(400, message="no markers, please") if b"[ibidem " in seen.body else Says("taken")

    for mode in ("sync", "async", "stream"):
        with Upstream(picky) as upstream:
            task = Task(upstream.url, "anthropic", mode, (), str, FRAMEWORK.adapter("anthropic"))
            for _ in range(2):
                answer = asyncio.run(_acreate(task)) if mode == "async" else _create(task)
                assert answer.content[0].text == "taken"
            bare = [each.json["messages"] == conversation()["messages"] for each in upstream.seen]
            assert bare == [False, True, True], bare


def _create(task: Task) -> Any:
    with _client(task, task.url, asynchronous=False) as client:
        if task.mode == "sync":
            return client.messages.create(**conversation())
        with client.messages.stream(**conversation()) as stream:
            return stream.get_final_message()


async def _acreate(task: Task) -> Any:
    async with _client(task, task.url, asynchronous=True) as client:
        return await client.messages.create(**conversation())


def others() -> None:
    """Sizes, batches, files: as they are."""
    with Upstream() as upstream:
        task = Task(upstream.url, "anthropic", "sync", (), str, FRAMEWORK.adapter("anthropic"))
        with _client(task, task.url, asynchronous=False) as client:
            asked = {key: value for key, value in conversation().items() if key != "max_tokens"}
            client.messages.count_tokens(**asked)
            with contextlib.suppress(Exception):  # it is no provider of batches
                client.messages.batches.create(requests=[{"custom_id": "one", "params": conversation()}])
            client.get("/v1/models", cast_to=object)
        counted, batch, _ = upstream.seen
        assert counted.json == asked
        assert batch.json["requests"][0]["params"] == conversation()


def thread() -> None:
    """A tool runner sends new messages alone: results are counted from the first one of the thread, not from these."""
    import anthropic

    @anthropic.beta_tool
    def read(path: str) -> str:
        """Reads a file."""
        return Files()(path)

    asked = ("read", {"path": "a.py"})
    with Upstream([Calls(asked), Calls(asked, asked), Says("read")]) as upstream:
        task = Task(upstream.url, "anthropic", "sync", (), str, FRAMEWORK.adapter("anthropic"))
        with _client(task, task.url, asynchronous=False) as client:
            said: list[Any] = [{"role": "user", "content": "Look"}]
            request = {"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": said}
            answer = client.beta.messages.tool_runner(**request, tools=[read]).until_done()
    assert answer.content[0].text == "read"
    assert [each.json["thread"]["type"] for each in upstream.seen] == ["create", "continue", "continue"]
    assert not any(b"[ibidem " in each.body for each in upstream.seen)


FRAMEWORK = Anthropic()
