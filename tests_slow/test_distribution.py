"""What is published: a wheel and an sdist, built as for a release, looked into, installed alone and used.

`IBIDEM_TEST_DIST=FOLDER` takes those in FOLDER instead of new ones. Packages come from the index that pip is set to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ibidem

ROOT = Path(__file__).parent.parent
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
IN_THE_SDIST = ("src", "tests", "tests_slow", "benchmarks", "deploy", "docs", "examples", ".ci", ".github")
DATA = {".py", ".css", ".html", ".js", ".json", ".lua", ".typed"}
"""Kinds of files that the package is made of: code, pages, the sample, a script for Redis, the mark of types."""


def ran(*command: object, cwd: Path | None = None, home: Path | None = None) -> str:
    env = {**os.environ, "COLUMNS": "100"} | ({} if home is None else {"HOME": str(home), "USERPROFILE": str(home)})
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def environment(folder: Path, *packages: object) -> Path:
    """A new one with nothing but these, and where its programs are."""
    ran(sys.executable, "-m", "venv", folder)
    ran(folder / PROGRAMS / "python", "-m", "pip", "install", "-q", *packages)
    return folder / PROGRAMS


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("tools"), "build", "twine")


@pytest.fixture(scope="module")
def built(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not (folder := os.environ.get("IBIDEM_TEST_DIST")):
        folder = str(tmp_path_factory.mktemp("dist"))
        ran(tools / "python", "-m", "build", "--outdir", folder, ROOT)  # the wheel is built from the sdist
    wheel, sdist = (list(Path(folder).resolve().glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    assert [len(wheel), len(sdist)] == [1, 1], "one of each"
    return {"wheel": wheel[0], "sdist": sdist[0]}


def files(folder: Path, base: Path) -> Iterator[str]:
    """As they are named in an archive; what a tool left behind is none."""
    for path in folder.rglob("*"):
        if path.is_file() and not {"__pycache__", ".hypothesis"} & {*path.parts}:
            yield path.relative_to(base).as_posix()


def test_the_index_would_take_both(tools: Path, built: dict[str, Path]) -> None:
    said = ran(tools / "python", "-m", "twine", "check", "--strict", *built.values())
    assert said.count("PASSED") == 2


def test_the_wheel_holds_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = f"ibidem_llm-{ibidem.__version__}.dist-info"
    described = {f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert names == {*files(ROOT / "src" / "ibidem", ROOT / "src"), *described}
    assert {Path(name).suffix for name in names - described} == DATA


def test_the_sdist_holds_all_that_tests_need(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {name for folder in IN_THE_SDIST for name in files(ROOT / folder, ROOT)}
    assert expected <= names
    loose = {name for name in names - expected if name != "PKG-INFO"}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"} <= loose
    assert all((ROOT / name).is_file() and "/" not in name for name in loose), loose - {*files(ROOT, ROOT)}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_works_where_nothing_else_is_installed(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    programs = environment(tmp_path / "alone", built[kind])
    (home := tmp_path / "home").mkdir()
    for name in ("ibidem", "ibidem-llm"):
        assert ran(programs / name, "--version", cwd=home) == f"ibidem {ibidem.__version__}\n"
        assert f"Usage: {name} report" in ran(programs / name, "report", "--help", cwd=home)
    here = (sys.executable, "-m", "ibidem.cli")
    assert ran(programs / "ibidem", "compact", cwd=home, home=home) == ran(*here, "compact", home=home)
    assert ran(programs / "ibidem-llm", "report", cwd=home, home=home) == ran(*here, "report", home=home)
    shipped = "from importlib.metadata import metadata; found = metadata('ibidem-llm'); "
    shipped += "print(found['Version'], *found.get_all('Provides-Extra'))"
    version, *extras = ran(programs / "python", "-c", shipped, cwd=home).split()
    assert version == ibidem.__version__
    assert {"dask", "mcp", "proxy", "redis", "socks", "speed", "testing"} <= {*extras}
