"""What a framework has to offer to be put to the contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, NamedTuple

from ibidem.testing import Answer, Seen, Upstream

KEY = "a-key-that-opens-nothing"
MAX_TURNS = 600
"""Model calls that a framework has to allow in one run: the contract has long ones."""

DESCRIPTION = "Reads a file."
"""Of the tool `read`, whose only argument is `path`, a string."""


@dataclass(frozen=True)
class Task:
    """What an agent is to do."""

    url: str
    """Where the provider is: host and port, without a path."""
    format: str
    """The wire: `anthropic`, `openai-chat`, `openai-responses`, `gemini`, or a framework's own word."""
    mode: str
    """`sync`, `async` or `stream`."""
    prompts: tuple[str, ...]
    """What the user says, one after the other, in one and the same conversation of the framework."""
    read: Callable[[str], str]
    """The tool. It may raise: the model is then told in the framework's own way, and the run goes on."""
    adapter: Any = None
    """What `Framework.adapter` made; None to run without us."""
    conversation: str = "one"
    """By which the framework knows the conversation, where it has such a thing."""
    image: bytes | None = None
    """A PNG that is shown with the first prompt."""
    system: str = ""
    """More for the system prompt, which comes right behind the usual one."""
    caching: bool = False
    """Whether the framework's own settings for the provider's cache are on (`Framework.caching`)."""


class Ran(NamedTuple):
    """What came of it."""

    texts: list[str]
    """The last answer to each prompt."""
    history: Any
    """What the framework keeps of the conversation, as plain JSON values: messages, checkpoint, session."""


class OwnCaching(NamedTuple):
    """What a framework asks of the provider's cache, in the words of `caching.asks`: looked at on the wire."""

    default: str
    """As a user finds it."""
    told: str
    """With the framework's own settings on, as `Task.caching` says."""
    grows: bool = True
    """Whether all that was sent is found by the next request; else what a conversation adds is paid in full."""


class Framework(ABC):
    name: ClassVar[str]
    """As in `ibidem.adapters.NAME`, or of the recipe."""
    package: ClassVar[str]
    """The distribution whose version is told."""
    requires: ClassVar[tuple[str, ...]]
    """What pip is to install."""
    seam: ClassVar[str]
    """Where we meet it, in its own words."""
    formats: ClassVar[tuple[str, ...]]
    modes: ClassVar[tuple[str, ...]] = ("sync", "async", "stream")
    images: ClassVar[bool] = True
    """Whether a user's message can have a picture."""
    retries: ClassVar[bool] = True
    """Whether an overloaded provider is asked again, by the framework or by the SDK below it."""
    usage: ClassVar[bool] = False
    """Whether a check of its own shows that what the provider counted is heard: by a proxy, in another process."""
    python: ClassVar[tuple[int, int]] = (3, 11)
    """The first that it runs on."""
    example: ClassVar[str] = ""
    """Its file in examples/."""
    left_out: ClassVar[dict[str, str]] = {}
    """Checks of the contract that do not apply, by name, each with the reason."""
    caching: ClassVar[dict[str, OwnCaching]] = {}
    """By wire, where it can be told to cache."""
    variables: ClassVar[dict[str, str]] = {}
    """Of the environment, for its process."""

    @property
    def module(self) -> str:
        """Its file here."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def adapter(self, format: str, profile: str = "lossless") -> Any:
        """Our part, as a user makes it. One is shared by all the runs of a check."""

    def caching_adapter(self, format: str) -> Any:
        """Our part with `cache="auto"`; None where it takes no such thing. Raises UsageError where that is refused."""
        return None

    @abstractmethod
    def run(self, task: Task) -> Ran:
        """All prompts of a task, each until the model calls no more. May be called from several threads at once."""

    def provider(self, format: str, script: Callable[[Seen], Answer]) -> AbstractContextManager[Any]:
        """The scripted provider, with `url` and `seen`."""
        return Upstream(script)

    def is_request(self, seen: Seen) -> bool:
        """Whether it carries a conversation: some frameworks also ask for other things."""
        return seen.method == "POST" and seen.whole

    def same(self, body: Any) -> Any:
        """A request as it came to the provider, without what differs from run to run: times, random ids."""
        return body

    def read_wire(self, body: Any, format: str) -> tuple[Any, str]:
        """A request in a format that `ibidem.expand` knows, and that format."""
        return body, format

    def version(self) -> str:
        """Of the package that matters."""
        return version(self.package)

    def own(self) -> dict[str, Callable[[], None]]:
        """Checks beside the contract, by a sentence that says what is true; AssertionError where it is not."""
        return {}
