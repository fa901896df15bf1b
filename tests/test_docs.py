"""Every example in the README and in `docs/` is run, and every link and anchor leads somewhere.

What a block is, its language says:

- `python` runs in this process, all blocks of a page in one module, from top to bottom. The provider that SDKs find in
  their variables is `ibidem.testing.Upstream`.
- `console` holds commands behind `$` and what they print, in a folder of the page's own. What is shown must be printed,
  in one piece; a line `…` leaves something out. `claude` is a stand-in that sends the bundled sample.
- `toml` and `json` are parsed; `text` is a drawing or a form.

A comment above a block says what else is known of it: `<!-- file: NAME -->` has it in the folder under that name, and
`<!-- not run: REASON -->` is for what cannot be run here; `NOT_RUN` counts these.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import ibidem
from ibidem.rules import RULES
from ibidem.rules.demands import Rule
from ibidem.testing import Says, Upstream
from ibidem.tokens import counter_for

from .test_repository import LAYERS, SOURCE

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TREE = ("benchmarks", "deploy", "docs", "src", "tests", "tests_slow", "examples", "plugins")
LINKED = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "deploy" / "README.md")

NOT_RUN = {
    "asks a provider, for money": 1,
    "changes settings of other programs": 3,
    "installs packages": 5,
    "needs a cluster that runs": 1,
    "needs a proxy that runs": 2,
    "needs programs of your own": 1,
    "needs the framework, and is run as a file in examples/": 16,
    "needs the recorded sessions": 15,
    "runs until stopped": 4,
    "takes minutes": 2,
    "times depend on the machine, and it takes minutes": 11,
}
"""Why an example is not run here, and how many there are."""

STAND_IN = """#!{python}
import json, os, urllib.request
from importlib import resources
request = json.loads((resources.files("ibidem") / "samples" / "conversation.json").read_bytes())
messages = request["messages"]
for length in (place for place in range(1, len(messages) + 1) if messages[place - 1]["role"] == "user"):
    *rest, last = messages[:length]
    content = last["content"] if isinstance(last["content"], list) else [{{"type": "text", "text": last["content"]}}]
    marked = {{**last, "content": [*content[:-1], {{**content[-1], "cache_control": {{"type": "ephemeral"}}}}]}}
    body = json.dumps({{**request, "messages": [*rest, marked]}}).encode()
    headers = {{"x-api-key": "none", "content-type": "application/json"}}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
"""
"""Sends what an agent would: every request that led to the sample, with a cache mark at its end."""


class Block(NamedTuple):
    line: int
    language: str
    note: str
    text: str

    @property
    def reason(self) -> str:
        """Why it is not run; empty for one that is."""
        return self.note.removeprefix("not run: ") if self.note.startswith("not run:") else ""


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, each with the comment that stands above it."""
    note, opened, indent, lines = "", None, 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.fullmatch(r"( *)```(\w*)", line)
        if opened is None and fence:
            opened, indent, lines = (number, fence[2]), len(fence[1]), []
        elif opened is not None and fence:
            yield Block(*opened, note, "\n".join(lines))
            note, opened = "", None
        elif opened is not None:
            lines.append(line[indent:])
        elif comment := re.fullmatch(r" *<!-- (.+) -->", line):
            note = comment[1]
        elif line.strip():
            note = ""
    assert opened is None, f"{page.name}: a block is not closed"


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """What stands behind each `$`, and the pieces of what is shown below it."""
    for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = shown.partition("\n")
        pieces = re.split(r"^…$", output, flags=re.MULTILINE)
        yield command, [piece.strip("\n") for piece in pieces if piece.strip()]


def of_pages(language: str) -> list[Path]:
    """Pages with a block of this language that is run."""
    return [page for page in PAGES if any(each.language == language and not each.reason for each in blocks(page))]


def named(page: Path) -> str:
    return page.name


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(lambda seen: Says("Done.")) as provider:
        yield provider


@pytest.fixture
def variables(upstream: Upstream, tmp_path: Path) -> dict[str, str]:
    """Of a user who has nothing set but where the provider is, which has not seen them before."""
    upstream.forget()
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "claude").write_text(STAND_IN.format(python=sys.executable))
    (bin / "claude").chmod(0o755)
    home = str(tmp_path / "home")
    return {
        "PATH": os.pathsep.join([str(bin), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": home,
        "USERPROFILE": home,
        "COLUMNS": "100",
        "IBIDEM_UPSTREAM_ANTHROPIC": upstream.url,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With what a clone has beside the package."""
    shutil.copytree(ROOT / "examples", tmp_path / "folder" / "examples")
    return tmp_path / "folder"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page):
        assert block.language in ("python", "console", "toml", "json", "text"), f"{page.name}:{block.line}"
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "console":
            assert block.text.startswith("$ "), f"{page.name}:{block.line}"


def test_what_is_not_run_says_why() -> None:
    found = Counter(block.reason for page in PAGES for block in blocks(page) if block.reason)
    assert found == NOT_RUN


@pytest.mark.parametrize("page", of_pages("python"), ids=named)
def test_python_runs(
    page: Path, upstream: Upstream, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", "none")
        monkeypatch.setenv(f"{name}_BASE_URL", upstream.url + ("/v1" if name == "OPENAI" else ""))
    module = ModuleType(page.stem)
    monkeypatch.setitem(sys.modules, page.stem, module)  # classes look for theirs
    for block in blocks(page):
        if block.language == "python" and not block.reason:
            # As many empty lines before it as there are in the page: so an error says where.
            exec(compile("\n" * block.line + block.text, str(page), "exec"), vars(module))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a shell of another kind")
@pytest.mark.parametrize("page", of_pages("console"), ids=named)
def test_commands_print_what_is_shown(page: Path, variables: dict[str, str], folder: Path) -> None:
    for block in blocks(page):
        if block.note.startswith("file: "):
            (folder / block.note.removeprefix("file: ")).write_text(block.text + "\n", encoding="utf-8")
        if block.language != "console" or block.reason:
            continue
        for command, pieces in commands(block):
            done = subprocess.run(command, shell=True, cwd=folder, env=variables, capture_output=True, text=True)
            printed = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines())
            assert done.returncode == 0, f"{page.name}: {command}\n{printed}"
            at = 0
            for piece in pieces:
                assert piece in printed[at:], f"{page.name}: {command}\nshown:\n{piece}\nprinted:\n{printed}"
                at = printed.index(piece, at) + len(piece)


def anchors(page: Path) -> set[str]:
    """Of its headings, as both the forge and the site name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(there), f"{page.name}: {link}"


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 110


def test_the_library_page_names_every_public_name() -> None:
    table = (ROOT / "docs" / "library.md").read_text(encoding="utf-8").partition("## Every public name")[2]
    assert sorted(re.findall(r"`(\w+)`(?=,|\s\|)", "\n".join(re.findall(r"^\| .+? \|", table, re.M)))) == sorted(
        ibidem.__all__
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_its_source(rule: Rule) -> None:
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    section = re.search(rf"^### {rule.name}\n(.+?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert f"`{type(rule).__name__}`" in section[1]
    assert "https://" in section[1] or "*SDK*" in section[1]


def test_markers_cost_what_is_said() -> None:
    rows = re.findall(r"^\| (\d+) \|.*?`(\[ibidem .+?\])`", (ROOT / "docs" / "markers.md").read_text(), re.MULTILINE)
    assert len(rows) == 24
    count = counter_for()
    assert [(count(marker), marker) for _, marker in rows] == [(int(tokens), marker) for tokens, marker in rows]


def section(page: Path, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.+?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_the_layers_are_those_that_are_enforced() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", section(ARCHITECTURE, "Layers"), re.MULTILINE)) == LAYERS


@pytest.mark.parametrize("walk", ["A request through the proxy", "A log through the report"])
def test_a_walk_passes_what_is_there(walk: str) -> None:
    """A file, and names in it: those that follow the file in the text."""
    text, passed = section(ARCHITECTURE, walk), 0
    for path, names in re.findall(r"`([\w/]+\.py)`((?:,? `[\w.]+`)*)", text):
        defined = definitions(SOURCE / path)
        for name in re.findall(r"`([\w.]+)`", names):
            if not name.endswith(".py"):
                assert name in defined, f"{path}: {name}"
                passed += 1
    assert passed >= 13


def definitions(path: Path) -> set[str]:
    """Functions and classes of a file, and methods as `Class.method`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, kinds)]
    inside = {f"{top.name}.{node.name}" for top in found for node in top.body if isinstance(node, kinds)}
    return {node.name for node in found} | inside


EXAMPLES = {"src/app.py", "my_agent.py"}
"""Files of the reader's own."""


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_are_named_are_there(page: Path) -> None:
    """Also by the end of their path, as `edge/driver.py`."""
    known = [each.as_posix() for top in TREE for each in (ROOT / top, *(ROOT / top).rglob("*"))]
    for name in re.findall(r"`((?:[\w-]+/)*[\w-]+\.py|(?:[\w-]+/)+(?:[\w-]+\.\w+)?)`", prose(page)):
        there = any(path.endswith(f"/{name.rstrip('/')}") for path in known)
        assert there or name in EXAMPLES, f"{page.name}: {name}"


def prose(page: Path) -> str:
    """All but the blocks."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_reference_has_every_public_name() -> None:
    documented = re.findall(r"^::: ibidem\.(\w+)", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert {*documented} == {*ibidem.__all__} - {"__version__"}


@pytest.mark.parametrize("page", [ROOT / "docs" / "glossary.md", ARCHITECTURE], ids=named)
def test_classes_that_are_explained_are_there(page: Path) -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    known = {*re.findall(r"^ *class (\w+)|^(\w+)\b.* = ", source, re.MULTILINE), *ibidem.__all__}
    names = {name for pair in known for name in (pair if isinstance(pair, tuple) else (pair,))}
    for name in re.findall(r"`([A-Z][a-z]\w+)(?:\.\w+)*`", prose(page)):
        assert name in names, f"{page.name}: {name}"


def test_every_page_is_in_the_site_and_in_the_index() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert {*re.findall(r"'([\w-]+\.md)'", repr(site["nav"]))} == pages
    assert {*re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text())} == pages - {"index.md"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="needs: pip install -e '.[docs]'")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    settings = (
        (ROOT / "zensical.toml").read_text().replace('paths = ["src"]', f"paths = [{json.dumps(str(ROOT / 'src'))}]")
    )
    (tmp_path / "zensical.toml").write_text(settings)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ibidem.Session.compact" in (tmp_path / "build" / "site" / "api.html").read_text(encoding="utf-8")
