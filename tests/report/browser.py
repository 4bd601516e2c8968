"""A browser to look at pages with: Chromium, driven over its DevTools protocol through a pair of
pipes.
"""

import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
PATIENCE = 60  # seconds for one answer; nothing here takes that long unless it hangs
FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--remote-debugging-pipe",
    ),
)
RENDERED = """new Promise((resolve) => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const look = () => {
    if (root.dataset.rendered !== (dark.matches ? "dark" : "light")) return;
    watch.disconnect();
    requestAnimationFrame(() => resolve(true));
  };
  const watch = new MutationObserver(look);
  watch.observe(root, { attributes: true });
  look();
})"""


@contextmanager
def open_browser(profile):
    """A `Browser` with its profile in an empty folder."""
    to_read, to_write = os.pipe(), os.pipe()  # what the browser reads, and what it writes
    # The protocol wants the descriptors 3 and 4.
    command = f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}'
    process = subprocess.Popen(
        ["bash", "-c", command, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_read[0], to_write[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read[0])
    os.close(to_write[1])
    browser = Browser(to_write[0], to_read[1])
    try:
        yield browser
        browser.call("Browser.close")
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        os.close(to_write[0])
        os.close(to_read[1])


class Browser:
    """The connection: commands are answered in order, events are kept by the session they belong
    to.
    """

    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.count = 0
        self.buffer = b""
        self.events = []

    def call(self, method, session=None, **params):
        """The result of a command."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params} | (
            {"sessionId": session} if session else {}
        )
        os.write(self.sink, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event, session):
        """The first event of a name, also if it has been already."""
        while not (
            found := [
                e for e in self.events if e.get("method") == event and e.get("sessionId") == session
            ]
        ):
            self.events.append(self.receive())
        return found[0]["params"]

    def receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.source], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            self.buffer += (part := os.read(self.source, 1 << 20))
            assert part, "the browser has ended"
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    @contextmanager
    def page(self, path, *, width=1400, dark=False, height=1000, script=True):
        """A file of this machine in a tab of its own; with `script`, once all charts near the
        window are drawn.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        tab = Page(
            self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        )
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setScriptExecutionDisabled", value=not script)
        tab.paint(dark=dark)
        tab.resize(width, height)
        tab.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired", tab.session)
        yield tab
        self.call("Target.closeTarget", targetId=target)


class Page:
    """A page that is open."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression):
        """The value of a JavaScript expression; that of a promise once it is there."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def paint(self, *, dark):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def resize(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def show_all(self, width):
        """Make the window as tall as the page, so that every chart is near, and wait until all are
        drawn.
        """
        self.resize(width, 200_000)
        self.evaluate(RENDERED)
        self.resize(width, self.evaluate("Math.ceil(document.body.getBoundingClientRect().bottom)"))

    def requests(self):
        """URLs that the page asked for."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def dialogs(self):
        """Whatever `alert` and the like said."""
        return self._events("Page.javascriptDialogOpening")

    def complaints(self):
        """Whatever stands in the console, and exceptions that nothing caught."""
        said = [
            " ".join(str(word.get("value", word.get("description"))) for word in event["args"])
            for event in self._events("Runtime.consoleAPICalled")
        ]
        logged = [event["entry"]["text"] for event in self._events("Log.entryAdded")]
        thrown = [
            event["exceptionDetails"]["text"] for event in self._events("Runtime.exceptionThrown")
        ]
        return said + logged + thrown

    def _events(self, name):
        self.call("Runtime.enable")  # what has happened is told before this is answered
        events = self.browser.events
        return [
            e["params"]
            for e in events
            if e.get("method") == name and e.get("sessionId") == self.session
        ]
