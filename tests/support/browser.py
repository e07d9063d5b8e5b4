"""Chromium for tests that read a page as a reader does, and everything forbidden that a page did."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

Scheme = Literal["light", "dark"]

ARGUMENTS = [
    "--no-sandbox",  # required for root, as in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",  # one process for all pages, which are opened and closed one at a time
]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def started() -> Iterator[Browser]:
    """Start the system's Chromium or Playwright's; skip the tests if there is neither."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        if found is None and not os.path.exists(own):
            pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed, nor Playwright's own")
        browser = playwright.chromium.launch(executable_path=found or own, args=ARGUMENTS)
        yield browser
        browser.close()


WRITTEN = """async (figure) => {
  const write = CanvasRenderingContext2D.prototype.fillText, all = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const { width } = this.measureText(text), size = parseFloat(this.font.match(/([\\d.]+)px/)[1]);
    const left = { center: -width / 2, right: -width }[this.textAlign] ?? 0;
    const top = { middle: -size / 2, bottom: -size }[this.textBaseline] ?? 0;
    const corner = (dx, dy) => this.getTransform().transformPoint(new DOMPoint(x + dx, y + dy));
    const ends = [corner(left, top), corner(left + width, top + size)];
    const sides = ["x", "y"].map((axis) => ends.map((end) => end[axis]).sort((a, b) => a - b));
    if (text.trim()) all.push({ text, sides });
    return write.apply(this, arguments);
  };
  figures.find((one) => one.root.id === figure).build();
  await new Promise(requestAnimationFrame);
  const { width, height } = document.querySelector(`#${figure} canvas`);
  const cut = ({ sides: [x, y] }) => Math.min(x[0], y[0], width - x[1], height - y[1]) < -1;
  const meet = (a, b) => a !== b &&
    a.sides.every(([from, to], i) => to > b.sides[i][0] + 2 && from + 2 < b.sides[i][1]);
  const bad = all.filter((a) => cut(a) || all.some((b) => meet(a, b)));
  return [all, bad].map((texts) => texts.map(({ text }) => text));
}"""


def written(page: Page, figure: str) -> tuple[list[str], list[str]]:
    """Return all text of a figure's first chart, and text that is cut off or overlaps other text."""
    text, bad = page.evaluate(WRITTEN, figure)
    return text, bad


class Reader:
    """A page opened from disk. `faults` are things it did that no report may do; it has to stay empty."""

    def __init__(self, browser: Browser, path: Path, scheme: Scheme = "light", width: int = 1280) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.faults: list[str] = []
        address = path.as_uri()
        self.page.on("console", lambda message: self.faults.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("popup", lambda popup: self.faults.append(f"window: {popup.url}"))
        self.page.on(
            "request",
            lambda request: None if request.url == address else self.faults.append(f"fetch: {request.url}"),
        )
        self.page.goto(address)

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()
