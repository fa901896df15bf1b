"""What Ibidem asks of its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibidem import environment


def test_the_command_to_install_a_part_names_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = Path(environment.__file__).parents[2]
    assert environment.install_command("proxy", "-q") == f"pip install -q '{root}[proxy]'"
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "lib" / "ibidem" / "environment.py"))
    assert environment.install_command("proxy") == f"pip install '{root}[proxy]'", "the metadata names it too"

    class FromIndex:
        def read_text(self, name: str) -> None:
            assert name == "direct_url.json"

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: FromIndex())
    assert environment.install_command("proxy") == "pip install 'ibidem-llm[proxy]'"
