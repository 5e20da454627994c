"""The page of the HTTP service in a real Chromium: the browser, the service behind it, and what a tab reports."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect, sync_playwright

from streamdedup.cli.serve import _listen
from streamdedup.serve.server import create_server
from tests.served import Service
from tests.servers import unavailable, wait_until

#: Time limit of a step in the browser, in milliseconds.
DEADLINE_MS = 90_000
#: Options of Chromium: tests may run as root, and without a screen. Fonts are drawn alike in every run.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--font-render-hinting=none", "--disable-lcd-text")
#: Roles whose elements need a name.
CONTROLS = frozenset({"button", "combobox", "link", "searchbox", "spinbutton", "tab", "textbox"})


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Start Debian's Chromium; a missing one is a skip on a laptop and a failure under CI."""
    program = shutil.which("chromium")
    if program is None:
        unavailable(FileNotFoundError("chromium: make tools installs it"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """Serve over a socket of this machine; yield the address of the page."""
    listener = _listen("127.0.0.1", 0)
    options = {"log_config": None, "access_log": False, "timeout_graceful_shutdown": 5}
    server = create_server(service.app, service.feeds.end, lambda: None, service.limits, options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started, what="the service")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class Tab:
    """A tab of the browser.

    Attributes:
        page: The page in it.
        errors: Errors that the page or the browser reported; answers that are problems are none.
        requested: Addresses that were requested.
    """

    def __init__(self, browser: Browser, **context: Any) -> None:
        given = {"viewport": {"width": 1000, "height": 800}, "timezone_id": "UTC", "locale": "en-GB", **context}
        self._context = browser.new_context(**given)
        self._context.set_default_timeout(DEADLINE_MS)
        expect.set_options(timeout=DEADLINE_MS)
        self.page: Page = self._context.new_page()
        self.errors: list[str] = []
        self.requested: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self._report(message.type, message.text))
        self.page.on("request", lambda request: self.requested.append(request.url))

    def _report(self, kind: str, text: str) -> None:
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.errors.append(text)

    def devtools(self) -> CDPSession:
        """Return a session of the protocol of Chromium's developer tools."""
        return self._context.new_cdp_session(self.page)

    def width(self) -> int:
        """Return the width that the page needs, in pixels."""
        return self.page.evaluate("document.documentElement.scrollWidth")

    def unnamed_controls(self) -> list[str]:
        """Return the roles of the controls in the accessibility tree that have no name."""
        nodes = self.devtools().send("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node["ignored"] and node["role"]["value"] in CONTROLS]
        assert shown
        return [node["role"]["value"] for node in shown if not node.get("name", {}).get("value", "").strip()]

    def memory(self) -> dict[str, float]:
        """Return the number of DOM nodes and the size of the JavaScript heap, after a collection of garbage."""
        session = self.devtools()
        session.send("Performance.enable")
        session.send("HeapProfiler.enable")
        session.send("HeapProfiler.collectGarbage")
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        session.detach()
        return {"nodes": metrics["Nodes"], "heap_bytes": metrics["JSHeapUsedSize"]}

    def close(self, url: str) -> None:
        """Close the tab; fail where it reported an error or requested something of another server."""
        self._context.close()
        if self.errors:
            pytest.fail("the page reported errors:\n" + "\n".join(self.errors))
        assert {each for each in self.requested if not each.startswith(url)} == set()
