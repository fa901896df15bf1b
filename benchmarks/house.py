"""Size of the source, as a table: `python -m benchmarks.house`.

Lines, tokens by package, names that are used twice, and the functions that one request goes through. `--src FOLDER`
measures another checkout, by the same script: FOLDER is the one that holds `ibidem`.

`--check` compares tokens and the walk with the bounds in tests/size.toml, `--write` lowers these bounds to what is
measured, and `--write --why "reason"` also raises them.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import re
import sys
import threading
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from types import FrameType
from typing import Any

HERE = Path(__file__).parent.parent / "src"

PROVIDERS = frozenset({"anthropic", "openai", "openai-chat", "openai-responses", "gemini", "google"})
"""Names of providers and of their wire formats."""

PROVIDER_ROOMS = ("formats/", "recordings/", "testing/", "providers/", "cli/clients/")
"""Where each provider, each agent's log, and each client's settings have a file or a table: they name them."""

WALKED_PROFILE = "lossless"
WALKED_TURNS = 4
WALKS = 6
"""Walks behind a bound that is written. A check takes one."""
UNCOUNTED = ("<", "_write_queue", "_flush_head")
"""Comprehensions, which belong to the function that contains them, and functions that are called or not by timing."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    """Its path below the package."""
    text: str
    tree: ast.Module

    def functions(self) -> Iterator[Function]:
        """All of them, also methods and functions in functions."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


def modules(src: Path) -> list[Module]:
    package = src / "ibidem"
    texts = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    return [Module(name, text, ast.parse(text)) for name, text in texts.items()]


def loose(files: Iterable[Module]) -> list[str]:
    """Modules beside the front door that are in no room."""
    return [each.name for each in files if "/" not in each.name and each.name != "__init__.py"]


def shared_names(files: Iterable[Module]) -> dict[str, list[str]]:
    """Names of classes that stand in two modules or more, and where."""
    homes: dict[str, list[str]] = {}
    for each in files:
        for node in each.tree.body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(each.name)
    return {name: where for name, where in homes.items() if len(where) > 1}


def asked_types(files: Iterable[Module]) -> list[str]:
    """Where it is asked which strategy one is: `isinstance` with a class that says what it `touches`."""
    strategies = {
        node.name
        for each in files
        for node in ast.walk(each.tree)
        if isinstance(node, ast.ClassDef) and "touches" in set(_assigned(node.body)) and not _protocol(node)
    }
    return [
        f"{each.name}:{node.lineno}"
        for each in files
        for node in ast.walk(each.tree)
        if isinstance(node, ast.Call) and _calls(node, "isinstance") and strategies & set(_names(node.args[1]))
    ]


def hooks(files: Iterable[Module]) -> list[str]:
    """Where something is asked for by a name in quotes that it may not have: `getattr` with a default."""
    return [
        f"{each.name}:{node.lineno}"
        for each in files
        for node in ast.walk(each.tree)
        if isinstance(node, ast.Call) and _calls(node, "getattr") and isinstance(node.args[1], ast.Constant)
    ]


def constants(files: Iterable[Module]) -> list[str]:
    """Names in capitals that a module gives a value."""
    named = [name.strip("_") for each in files for name in _assigned(each.tree.body)]
    return [name for name in named if name.isupper()]


def locals_named(files: Iterable[Module], name: str) -> int:
    """How often something is given that name."""
    nodes = (node for each in files for node in ast.walk(each.tree))
    return sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in nodes)


def comment_lines(src: Path) -> int:
    count = 0
    for path in (src / "ibidem").rglob("*.py"):
        with path.open("rb") as file:
            count += len(
                {token.start[0] for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT}
            )
    return count


def provider_names(files: Iterable[Module]) -> list[str]:
    """Where a function outside the rooms of the providers names one: in quotes, or by a constant that is one.

    What a table of a module or a class says is data, not logic.
    """
    places = []
    for each in files:
        if each.name.startswith(PROVIDER_ROOMS):
            continue
        for function in each.functions():
            places += [f"{each.name}:{node.lineno}" for node in _inside(function) if _names_provider(node)]
    return places


def _names_provider(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in PROVIDERS if isinstance(node.value, str) else False
    return isinstance(node, ast.Name) and node.id in {"ANTHROPIC", "CHAT", "RESPONSES", "GEMINI"}


def _inside(function: Function) -> Iterator[ast.expr]:
    """All that it says, without what functions in it say for themselves."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr):
            yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, Function)]


def _assigned(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (name for target in targets for name in _names(target))


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _calls(node: ast.Call, name: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == name and len(node.args) > 1


def _protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in set(_names(base)) for base in node.bases)


def lengths(files: Iterable[Module]) -> list[int]:
    """Of all functions, in lines."""
    return sorted((node.end_lineno or 0) - node.lineno + 1 for each in files for node in each.functions())


Step = tuple[str, str]
"""A file and a function in it."""


def walk(src: Path) -> list[Step]:
    """The functions that a warm request goes through in the proxy, in the order in which each is called first.

    A conversation in which one file is read again and again goes through the real proxy on loopback. The last request
    is watched, from its first byte to the last of its accounting. Comprehensions belong to the function that they stand
    in. Steps of worker threads follow those of the event loop.
    """
    sys.path.insert(0, str(src))
    return asyncio.run(_walk(src))


async def _walk(src: Path) -> list[Step]:
    from ibidem.proxy.edge import app, server
    from ibidem.proxy.settings import Settings
    from ibidem.store import MemoryStore
    from ibidem.testing import Says, Upstream

    steps: dict[int, dict[Step, None]] = {}
    watching = threading.Event()
    package, testing = str(src / "ibidem"), str(src / "ibidem" / "testing")

    def hook(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_filename
        is_ours = name.startswith(package) and not name.startswith(testing) and not code.co_name.startswith(UNCOUNTED)
        if event == "call" and watching.is_set() and is_ours:
            steps.setdefault(threading.get_ident(), {}).setdefault((name, code.co_qualname))

    app.PAUSE_SECONDS = 1e9  # else one request in a second reads pauses, and is longer
    proxies: list[app.Proxy] = []
    warm = app.Proxy.start_background

    def note_proxy(proxy: app.Proxy) -> None:
        proxies.append(proxy)
        warm(proxy)

    app.Proxy.start_background = note_proxy  # type: ignore[assignment, method-assign]
    threading.setprofile(hook)
    address: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    with Upstream(lambda _: Says("ok")) as upstream:
        settings = Settings(port=0, profile=WALKED_PROFILE, upstreams={"anthropic": upstream.url}, budget_ms=60_000)
        serving = asyncio.ensure_future(
            server.serve_proxy(settings, ready=address.set_result, stop=stop, store=MemoryStore())
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", (await address).port)
        *bodies, last = _requests()
        for body in bodies:
            await _ask(reader, writer, body)
            while not proxies[0]._warmup.is_complete or proxies[0]._background:
                await asyncio.sleep(0.01)
        watching.set()
        sys.setprofile(hook)
        await _ask(reader, writer, last)
        while proxies[0].stats.statistics_json(0.0)["totals"]["requests"] <= len(bodies):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        sys.setprofile(None)
        watching.clear()
        assert len(upstream.seen[-1].body) < len(last), "it was not rewritten"
        writer.close()
        stop.set()
        await serving
    threading.setprofile(None)
    own = steps.pop(threading.get_ident())
    return [*own, *(step for each in steps.values() for step in each if step not in own)]


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: k\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answered = await reader.readuntil(b"\r\n\r\n")
    assert answered.startswith(b"HTTP/1.1 200 "), answered
    length = re.search(rb"(?i)content-length: (\d+)", answered)
    await (reader.readexactly(int(length[1])) if length else reader.readuntil(b"0\r\n\r\n"))


def _requests() -> Iterator[bytes]:
    """One file, read again and again, and changed meanwhile."""
    text = "\n".join(f"line {number} of the file = {number * number}" for number in range(60))
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend it."}]
    for turn in range(WALKED_TURNS):
        read = text.replace("line 30", f"row {turn % 2}")
        call = {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {"file_path": "a.py"}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": read}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        yield json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}).encode()


LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)


def tokens(src: Path) -> dict[str, int]:
    """Python tokens without comments and layout, by package. Modules beside the packages are `modules`."""
    counts: Counter[str] = Counter()
    for path in sorted((src / "ibidem").rglob("*.py")):
        parts = path.relative_to(src / "ibidem").parts
        with path.open("rb") as file:
            found = tokenize.tokenize(file.readline)
            counts[parts[0] if len(parts) > 1 else "modules"] += sum(token.type not in LAYOUT for token in found)
    return dict(sorted(counts.items()))


def walk_size(src: Path, walks: int = 1) -> dict[str, int]:
    """Size of the walk; of several walks, each number is the largest one.

    The response comes in one piece or in two, which decides whether its head is flushed early: the order of three
    functions differs from walk to walk.
    """
    sizes = [_measure_steps(walk(src)) for _ in range(walks)]
    return {name: max(size[name] for size in sizes) for name in sizes[0]}


def _measure_steps(steps: list[Step]) -> dict[str, int]:
    changes = sum(before != after for (before, _), (after, _) in pairwise(steps))
    return {"functions": len(steps), "files": len({file for file, _ in steps}), "changes_of_file": changes}


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────────────────

BOUNDS = Path(__file__).parent.parent / "tests" / "size.toml"
TOKEN_STEP = 100
"""Bounds of tokens are multiples of this, so that a small change needs no new bound."""
HEAD = """\
# Bounds of the source in src/ibidem, checked by tests/test_repository.py.
# A change may lower a bound. Raising one needs a reason behind it.
#   python -m benchmarks.house --write                  lower bounds to what is measured, and add packages
#   python -m benchmarks.house --write --why "reason"   raise bounds too
# tokens: Python tokens without comments and layout, by package, rounded up to hundreds.
# walk: one warm request through the proxy, from its first byte to the end of its accounting.
"""
Bounds = dict[str, dict[str, int]]


def measure_bounds(src: Path, walks: int) -> Bounds:
    """The lowest bounds that this source keeps."""
    rounded = {name: -(-count // TOKEN_STEP) * TOKEN_STEP for name, count in tokens(src).items()}
    return {"tokens": rounded, "walk": walk_size(src, walks)}


def exceeded(measured: Bounds, bounds: Bounds) -> list[str]:
    """A line for each bound that is exceeded or missing, and for each package that is gone."""
    lines = []
    for table, values in measured.items():
        known = bounds.get(table, {})
        lines += [
            f"{table}.{name}: {value:,}, bound {known.get(name, 0):,}"
            for name, value in values.items()
            if value > known.get(name, 0)
        ]
        lines += [f"{table}.{name}: there is no such package" for name in known.keys() - values.keys()]
    return lines


def write_bounds(measured: Bounds, text: str, why: str) -> str:
    """The file with new bounds and the reasons that it has. Raises ValueError if a bound is raised without a reason."""
    known, reasons = tomllib.loads(text), dict(re.findall(r"^(\w+) = \d+  # (.*)$", text, re.MULTILINE))
    lines = [HEAD]
    for table, values in measured.items():
        lines.append(f"[{table}]\n")
        for name, value in values.items():
            bound = known.get(table, {}).get(name)
            if bound is not None and value > bound and not why:
                raise ValueError(f"{table}.{name}: {value:,} is above the bound of {bound:,}: say --why")
            reason = f"raised from {bound}: {why}" if bound is not None and value > bound else reasons.get(name, "")
            lines.append(f"{name} = {value}{f'  # {reason}' if reason else ''}\n")
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def figures(src: Path) -> Iterator[tuple[str, str]]:
    files = modules(src)
    lines = sum(each.text.count("\n") for each in files)
    sizes = lengths(files)
    hundredths = quantiles(sizes, n=100)
    names = constants(files)
    yield "files", f"{len(files)}"
    yield "lines", f"{lines:,}"
    yield (
        "lines of a function: median / p90 / p99 / longest",
        f"{hundredths[49]:.0f} / {hundredths[89]:.0f} / {hundredths[98]:.0f} / {sizes[-1]}",
    )
    yield "loose modules", f"{len(loose(files))}"
    yield "class names in two modules", f"{len(shared_names(files))}"
    yield "`isinstance` on strategies", f"{len(asked_types(files))}"
    yield "`getattr` by a name in quotes", f"{len(hooks(files))}"
    yield "constants of one word", f"{sum('_' not in name for name in names)} of {len(names)}"
    yield "things named `found`", f"{locals_named(files, 'found')}"
    yield "lines with a comment", f"{comment_lines(src) / lines:.1%}"
    yield "providers named in logic", f"{len(provider_names(files))}"
    yield "tokens", f"{sum(tokens(src).values()):,}"
    steps = walk_size(src)
    yield "walk of a warm request: functions / files / changes of file", " / ".join(map(str, steps.values()))


def check_or_write(measured: Bounds, writes: bool, why: str) -> None:
    text = BOUNDS.read_text() if BOUNDS.exists() else ""
    if not writes:
        sys.exit("\n".join(exceeded(measured, tomllib.loads(text))) or None)
    try:
        BOUNDS.write_text(write_bounds(measured, text, why))
    except ValueError as error:
        sys.exit(str(error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--src", type=Path, default=HERE, help="the folder that holds `ibidem`")
    parser.add_argument("--where", action="store_true", help="also say where what is counted stands")
    parser.add_argument("--check", action="store_true", help="compare with the bounds in tests/size.toml")
    parser.add_argument("--write", action="store_true", help="write these bounds")
    parser.add_argument("--why", default="", help="the reason, if a bound is raised")
    args = parser.parse_args()
    src = args.src.resolve()
    if args.check or args.write:
        check_or_write(measure_bounds(src, WALKS if args.write else 1), args.write, args.why)
        return
    print("| | |\n|---|---|")
    for name, value in figures(src):
        print(f"| {name} | {value} |")
    if args.where:
        files = modules(src)
        print(f"\nclass names: {shared_names(files)}")
        for name, places in (
            ("isinstance", asked_types(files)),
            ("getattr", hooks(files)),
            ("providers", provider_names(files)),
        ):
            print(f"{name}: {', '.join(places)}")


if __name__ == "__main__":
    main()
