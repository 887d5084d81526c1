"""A browser without a window, driven over a pipe by the DevTools protocol: no package needed."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

FOUND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The browser's program, or None."""
PATIENCE = 60.0
"""Seconds until an answer must have come."""


class Browser:
    """One page in a browser, to be used in a `with` block.

    Attributes:
        problems: what went to the console or was refused by the page's security policy.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.problems, self.number, self.rest = folder, list[str](), 0, b""

    def __enter__(self) -> Self:
        assert FOUND is not None
        to_browser, from_browser = os.pipe(), os.pipe()
        # Away from 3 and 4, the numbers under which the browser expects its pipes.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 50) for end in (to_browser[0], from_browser[1])]
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--remote-debugging-pipe", f"--user-data-dir={self.folder / 'profile'}", "about:blank"]  # fmt: skip
        command = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", FOUND, *options]
        self.process = subprocess.Popen(
            command, pass_fds=theirs, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (*theirs, to_browser[0], from_browser[1]):
            os.close(end)
        self.write, self.read, self.session = to_browser[1], from_browser[0], {}
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.write)
        os.close(self.read)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; problems that are reported meanwhile are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **self.session}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self.number:
            pass
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def open(self, file: Path, scheme: str = "light", width: int = 1100) -> None:
        """Load a page in a colour scheme and a window of this width."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=file.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def _message(self) -> dict[str, Any]:
        """The next message of the browser."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            more = os.read(self.read, 1 << 20) if ready else b""
            assert more, "the browser does not answer"
            self.rest += more
        first, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(first)
        if message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.problems.append(json.dumps(message["params"]))
        return message
