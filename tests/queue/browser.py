"""A headless Chromium for tests, driven over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.warm import wait_for

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_ANSWERS_WITHIN_S = 30.0


class Tab:
    """A tab of the browser.

    Attributes:
        problems: Exceptions, errors of the console and violations of the content policy.
    """

    def __init__(self, send: int, receive: int) -> None:
        self.problems: list[str] = []
        self._send, self._receive = send, receive
        self._number, self._session, self._buffer = 0, "", b""

    def attach(self) -> None:
        """Open the tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Result of a method of the protocol."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._send, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result

    def _message(self) -> dict[str, Any]:
        until_s = time.monotonic() + _ANSWERS_WITHIN_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, until_s - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._receive, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.problems.append(message["params"]["entry"]["text"])
            case "Runtime.consoleAPICalled" if message["params"]["type"] == "error":
                self.problems.append(str(message["params"]["args"]))
        return message

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Give the page a size, and a colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def text(self, selector: str) -> str:
        """Text of an element as the user sees it; empty if there is none."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """Press the element in its middle, with the mouse."""
        place = self.run(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)});"
            " box.scrollIntoView({block: 'nearest'}); const at = box.getBoundingClientRect();"
            " return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def key(self, name: str) -> None:
        """Press a key, such as `Tab`, `Enter` or `Escape`."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}[name]
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **more)

    def shows(self, selector: str, words: str) -> None:
        """Wait until an element has these words."""
        wait_for(
            lambda: words in self.text(selector),
            otherwise=lambda: (selector, words, self.text("body"), self.problems),
        )

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Context manager: a tab of a browser with a profile of its own in the folder."""
    assert CHROMIUM is not None
    ends = [end for _ in range(2) for end in os.pipe()]
    their_in, send, receive, their_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    line = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder}",
    ]
    # The protocol is spoken on the descriptors 3 and 4.
    words = ["bash", "-c", f'exec 3<&{their_in} 4>&{their_out}; exec "$@"', "bash", *line]
    process = subprocess.Popen(
        words, pass_fds=[their_in, their_out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(their_in)
    os.close(their_out)
    try:
        tab = Tab(send, receive)
        tab.attach()
        yield tab
    finally:
        os.close(send)  # at the end of its pipe, the browser ends
        os.close(receive)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
