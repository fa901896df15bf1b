"""What the house is like to live in, as a table: `python -m benchmarks.house`.

How much there is to read, how far one reading goes, what is named twice, and which functions one request walks
through. `--src FOLDER` measures another checkout, by the same script: FOLDER is the one that holds `ibidem`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
import tokenize
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

PROVIDER_ROOMS = ("formats/", "recordings/", "testing/", "proxy/providers.py", "proxy/routes.py", "cli/clients/")
"""Where each provider, each agent's log, and each client's settings have a file or a table: they name them."""

WALKED_PROFILE = "lossless"
WALKED_TURNS = 4

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


def layers(src: Path) -> int:
    """Rows of the table that says who may import whom."""
    tree = ast.parse((src.parent / "tests" / "test_repository.py").read_text("utf-8"))
    tables = (node.value for node in tree.body if isinstance(node, ast.Assign) and "LAYERS" in set(_assigned([node])))
    return max((len(table.elts) for table in tables if isinstance(table, ast.Tuple)), default=0)


def lengths(files: Iterable[Module]) -> list[int]:
    """Of all functions, in lines."""
    return sorted((node.end_lineno or 0) - node.lineno + 1 for each in files for node in each.functions())


Step = tuple[str, str]
"""A file and a function in it."""


def walk(src: Path) -> list[Step]:
    """The functions that a warm request goes through on its way out, in the order in which each is called first.

    A conversation in which one file is read again and again, rewritten as the proxy does it, without its sockets; the
    last request is watched. Comprehensions belong to the function that they stand in. Classes are looked up by name,
    wherever a checkout has them.
    """
    sys.path.insert(0, str(src))
    store = importlib.import_module("ibidem.store").MemoryStore()
    files = modules(src)
    conversations = _class(files, "Conversations")(WALKED_PROFILE, store, 10, 2**30)
    rewriter = _class(files, "Rewriter")(conversations, False, 2**30)
    job = _class(files, "Job")
    jobs = [job("anthropic", "", "", body, float(at)) for at, body in enumerate(_requests())]
    for each in jobs[:-1]:
        rewriter.rewrite(each)
    steps: dict[Step, None] = {}

    def hook(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(src)) and not code.co_name.startswith("<"):
            steps.setdefault((code.co_filename, code.co_qualname))

    sys.setprofile(hook)
    outcome = rewriter.rewrite(jobs[-1])
    sys.setprofile(None)
    assert outcome.result == "rewritten", outcome
    return list(steps)


def _class(files: Iterable[Module], name: str) -> Any:
    home = next(
        each for each in files if any(isinstance(node, ast.ClassDef) and node.name == name for node in each.tree.body)
    )
    return getattr(importlib.import_module(".".join(("ibidem", *Path(home.name).with_suffix("").parts))), name)


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
    yield "layers", f"{layers(src)}"
    yield "class names in two modules", f"{len(shared_names(files))}"
    yield "`isinstance` on strategies", f"{len(asked_types(files))}"
    yield "`getattr` by a name in quotes", f"{len(hooks(files))}"
    yield "constants of one word", f"{sum('_' not in name for name in names)} of {len(names)}"
    yield "things named `found`", f"{locals_named(files, 'found')}"
    yield "lines with a comment", f"{comment_lines(src) / lines:.1%}"
    yield "providers named in logic", f"{len(provider_names(files))}"
    steps = walk(src)
    changes = sum(before != after for (before, _), (after, _) in pairwise(steps))
    places = len({file for file, _ in steps})
    yield "walk of a warm request: functions / files / changes of file", f"{len(steps)} / {places} / {changes}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--src", type=Path, default=HERE, help="the folder that holds `ibidem`")
    parser.add_argument("--where", action="store_true", help="also say where what is counted stands")
    args = parser.parse_args()
    src = args.src.resolve()
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
