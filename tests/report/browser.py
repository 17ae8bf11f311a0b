"""A real browser for tests: Chromium without a window, spoken to through chromedriver by the standard library."""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

import pytest

__all__ = ["Browser", "browser_or_skip"]

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--hide-scrollbars",
)  # fmt: skip


def _program(*names: str) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)


def browser_or_skip() -> tuple[str, str]:
    """Chromium and chromedriver; without them the test is skipped, and says how to get them."""
    chromium = _program("chromium", "chromium-browser", "google-chrome")
    driver = _program("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no browser here: `make browser` installs Chromium and its driver where it may")
    return chromium, driver


class Browser:
    """One window of 1280 by 900."""

    def __init__(self, profile: Path) -> None:
        chromium, driver = browser_or_skip()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._address = f"http://127.0.0.1:{port}"
        options = {
            "binary": chromium,
            "args": [*_FLAGS, "--window-size=1280,900", f"--user-data-dir={profile}", "about:blank"],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            self._wait_for_driver()
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._driver.kill()
            self._driver.wait()
            raise
        self._session = f"/session/{made['sessionId']}"
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=10)

    def _wait_for_driver(self) -> None:
        for _ in range(100):
            try:
                self._ask("GET", "/status")
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError("chromedriver does not answer")

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=verb)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback, whatever the environment says
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def open(self, page: Path, part: str = "") -> float:
        """Go to a file; returns the milliseconds until its figures were drawn."""
        self._ask("POST", f"{self._session}/url", {"url": "about:blank"})
        self.errors()
        self.asked_for()  # what the browser did for itself
        self._ask("POST", f"{self._session}/url", {"url": page.resolve().as_uri() + part})
        self.wait("document.documentElement.dataset.ready")
        return float(self.run("return document.documentElement.dataset.ready"))

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a piece of JavaScript returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """A real click on the first element that a selector finds."""
        found = self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"{self._session}/element/{next(iter(found.values()))}/click", {})

    def press(self, selector: str, keys: str) -> None:
        """Real key presses in an element."""
        found = self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"{self._session}/element/{next(iter(found.values()))}/value", {"text": keys})

    def errors(self) -> list[str]:
        """What the console complained about since the last time."""
        lines = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]

    def asked_for(self) -> list[str]:
        """Addresses requested since the last time, but for the empty page and what is inside the page itself."""
        found = []
        for line in self._ask("POST", f"{self._session}/se/log", {"type": "performance"}):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(str(message["params"]["request"]["url"]))
        return [address for address in found if not re.match(r"(about|data|blob):", address)]

    def picture(self, path: Path, height: int | None = None) -> None:
        """A PNG of the window, or of as much of the page as asked for."""
        if height is not None:
            size = {"width": 1280, "height": height}
            self._ask("POST", f"{self._session}/window/rect", size)
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._session}/screenshot")))
