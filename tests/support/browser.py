"""A real Chromium, and what every page of ours has to get right in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser; a test that needs one is skipped where there is none."""
    if not CHROMIUM.exists():
        pytest.skip(f"needs Chromium at {CHROMIUM}: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


def scrolls_sideways(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


TEXTS = """(() => {
  const shade = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255).map((part) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const found = shade(getComputedStyle(each).backgroundColor);
      if (found[3] > 0) return found;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest("script, style, title, option"))
      continue;
    const style = getComputedStyle(node);
    const ink = shade(node.closest("svg") ? style.fill : style.color);
    const [one, other] = [light(ink), light(behind(node))].sort((a, b) => b - a);
    found.push([walker.currentNode.data.trim(), (one + 0.05) / (other + 0.05), parseFloat(style.fontSize)]);
  }
  return found;
})()"""


def hard_to_read(page: Page, contrast: float = 4.5, pixels: float = 12.0) -> list[str]:
    """Texts that stand out too little from what is behind them, or are too small."""
    texts: list[tuple[str, float, float]] = page.evaluate(TEXTS)
    assert len(texts) > 20
    return [f"{words!r}: {ratio:.1f}, {size}px" for words, ratio, size in texts if ratio < contrast or size < pixels]
