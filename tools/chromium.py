"""Headless Chromium for pages: opens files, evaluates JavaScript, presses keys and takes pictures, by its debugging
pipe."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""Path of the browser; ``None`` where there is none."""

_KEYS = {"Enter": (13, "\r"), "ArrowDown": (40, ""), "ArrowRight": (39, ""), "Tab": (9, "")}
"""Codes and texts of keys."""


class Page:
    """An open page."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb", buffering=0)
        self._numbers, self._left, self._session = itertools.count(1), b"", ""

    def open(self, path: Path, width: int, height: int) -> None:
        """Open a file in a window of this size, and wait until it is loaded."""
        found = self._call("Target.createTarget", url="about:blank")
        attached = self._call("Target.attachToTarget", targetId=found["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call("Page.enable")
        self.navigate(path)

    def navigate(self, path: Path) -> None:
        """Open another file in the same window, and wait until it is loaded."""
        self._call("Page.navigate", url=path.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, which must be JSON."""
        given = {"expression": script, "returnByValue": True}
        found = self._call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def show(self, width: int, height: int, scheme: str = "light") -> None:
        """Show the page in a window of this size, for a reader who prefers the ``light`` or the ``dark`` scheme."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path, quality: int = 80) -> None:
        """Write what the window shows to a file, as WebP or PNG by its suffix."""
        kind: dict[str, Any] = {"format": "png"}
        if path.suffix == ".webp":
            kind = {"format": "webp", "quality": quality}
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", **kind)["data"]))

    def press(self, key: str) -> None:
        """Press and release a key, as a user does."""
        code, text = _KEYS[key]
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **given)
        self._call("Input.dispatchKeyEvent", type="keyUp", **given)

    def close(self) -> None:
        """Close the pipe, which ends the browser."""
        os.close(self._commands)
        self._answers.close()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            more = self._answers.read(1 << 16)
            assert more, "the browser has ended"
            self._left += more
        first, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@contextmanager
def opened(path: Path, profile: Path, width: int = 1400, height: int = 1000) -> Iterator[Page]:
    """Open a file in a browser of its own, whose profile is in the folder ``profile``."""
    assert PROGRAM is not None
    given, taken = os.pipe(), os.pipe()
    arguments = [
        PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
        f"--user-data-dir={profile}", "--remote-debugging-pipe",
    ]  # fmt: skip
    # The browser reads commands from descriptor 3 and writes answers to descriptor 4.
    script = f'exec "$0" "$@" 3<&{given[0]} 4>&{taken[1]}'
    process = subprocess.Popen(
        ["bash", "-c", script, *arguments],
        pass_fds=(given[0], taken[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(given[0])
    os.close(taken[1])
    page = Page(given[1], taken[0])
    try:
        page.open(path, width, height)
        yield page
    finally:
        page.close()
        process.terminate()
        process.wait(20)
