"""Private attributes of aiohttp that `proxy/edge` uses, which is why aiohttp is pinned below its next minor version."""

from __future__ import annotations

import ast
import asyncio
import tomllib
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from packaging.requirements import Requirement

from ibidem.proxy import edge

SUBCLASSED = {
    "ClientProtocol": {"_close", "_current_request", "_loop", "_messages", "_request_count", "_upgraded", "_waiter"},
    "UpstreamProtocol": {"_exception", "_parser"},
    "Connector": {"_create_connection", "_factory", "_get_ssl_context", "_loop", "_wrap_existing_connection"},
    "Server": {"_kwargs", "_loop"},
}
"""By the class of ours that uses them on itself."""
OTHERS = {"_drain_helper", "_read_nowait"}
"""Used on objects that aiohttp made. `_buffer` is used too, only if it is there."""


async def _instances() -> dict[str, object]:
    loop = asyncio.get_running_loop()
    server = web.Server(lambda _: None)  # type: ignore[arg-type, return-value]
    async with aiohttp.TCPConnector() as connector:
        handler = RequestHandler(server, loop=loop)
        response = ResponseHandler(loop)
        return {"ClientProtocol": handler, "UpstreamProtocol": response, "Connector": connector, "Server": server}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_aiohttp_has_every_private_attribute_and_no_other_is_used() -> None:
    instances = asyncio.run(_instances())
    used: dict[str, set[str]] = {name: set() for name in instances}
    defined, foreign = set[str](), set[str]()
    for path in Path(edge.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in instances:
                names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
                names |= {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                base = instances[node.name]
                used[node.name] = {name for name in names if _is_private(name) and hasattr(base, name)}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined.add(node.name)
            if isinstance(node, ast.Attribute) and _is_private(node.attr):
                is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
                (defined if is_own else foreign).add(node.attr)
    assert used == SUBCLASSED
    assert foreign - defined - {"_create_connection", "_replace"} == OTHERS  # named tuples have `_replace`
    assert hasattr(ResponseHandler, "_drain_helper")
    assert hasattr(RequestHandler, "_drain_helper")
    assert hasattr(StreamReader, "_read_nowait")


def test_aiohttp_is_pinned_below_its_next_minor_version() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    [pin] = [Requirement(each) for each in project["optional-dependencies"]["proxy"] if each.startswith("aiohttp")]
    major, minor = aiohttp.__version__.split(".")[:2]
    assert pin.specifier.contains(aiohttp.__version__)
    assert not pin.specifier.contains(f"{major}.{int(minor) + 1}.0")
