"""A headless Chromium driven over its DevTools protocol, through pipes. Python's standard library only."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

HANG = 180  # seconds after which a browser that says nothing is taken for hung
CHROMIUM = os.environ.get("HEARTH_CHROMIUM") or next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
KEYS = {"Enter": (13, "\r"), "Escape": (27, "")}
SHIFT = 8


class Browser:
    """A browser with a profile of its own, which lasts as long as it does."""

    def __init__(self):
        self.profile = pathlib.Path(tempfile.mkdtemp(prefix="hearth-browser-"))
        words = [CHROMIUM, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--no-first-run", "--disable-gpu",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "about:blank"]
        if os.geteuid() == 0:
            words.insert(1, "--no-sandbox")  # which root does not get
        pipes = ["sh", "-c", 'exec "$0" "$@" 3<&0 4>&1']  # Chromium reads messages from 3 and writes them to 4
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(pipes + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        self.number, self.pages = 0, {}

    def send(self, **message):
        """Sends a message of a new number."""
        self.number += 1
        self.process.stdin.write(json.dumps({"id": self.number, **message}).encode() + b"\0")
        self.process.stdin.flush()
        return self.number

    def receive(self):
        message = bytearray()
        while not message.endswith(b"\0"):
            part = self.process.stdout.peek()
            if not part:
                self.said.seek(0)
                raise EOFError("the browser has ended: " + "".join(self.said.readlines()[-5:]))
            message += self.process.stdout.read(part.find(b"\0") + 1 or len(part))
        return json.loads(message[:-1])

    def call(self, method, session=None, **params):
        number = self.send(method=method, params=params, **({"sessionId": session} if session else {}))
        while True:
            got = self.receive()
            if got.get("id") == number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            page = self.pages.get(got.get("sessionId"))
            if page and "method" in got:  # else it answers a call that nobody waits for
                page.event(got["method"], got["params"])

    def close(self):
        self.process.stdin.close()  # which ends it
        self.process.stdout.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.close()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """A tab. `problems` are errors of its script, of its policy and of the network; confirm() is answered with `confirms`."""

    def __init__(self, browser, url, width=1000, height=800, mobile=False, dark=False):
        self.browser, self.problems, self.confirms, self.dialogs = browser, [], True, []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ["Page", "Runtime", "Log"]:
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.target = target
        self.open(url)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            # Its answer comes among others': it is not waited for.
            self.browser.send(method="Page.handleJavaScriptDialog", params={"accept": self.confirms}, sessionId=self.session)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.evaluate("window.before = true")
        self.call("Page.reload")
        self.wait("document.readyState === 'complete' && !window.before")

    def evaluate(self, expression):
        """The value of an expression; a promise is waited for."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise AssertionError(got["exceptionDetails"].get("exception", {}).get("description", got["exceptionDetails"]["text"]))
        return got["result"].get("value")

    def wait(self, expression):
        """Asks until the expression is true in JavaScript's sense; returns its value, true for a node."""
        until, asked = time.monotonic() + HANG, f"(async () => {{ const v = await ({expression}); return v instanceof Node || v; }})()"
        while True:
            try:
                if value := self.evaluate(asked):
                    return value
            except RuntimeError:
                pass  # the page is just being replaced
            if time.monotonic() > until:
                raise AssertionError(f"{expression} does not come true; the page has {self.text('body')!r}")
            time.sleep(0.03)

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText")

    def texts(self, selector):
        return self.evaluate(f"Array.from(document.querySelectorAll({json.dumps(selector)}), e => e.innerText)")

    def click(self, selector):
        """Presses the mouse on the middle of the first visible element."""
        found = self.wait(
            f"""(() => {{
              const e = Array.from(document.querySelectorAll({json.dumps(selector)})).find(e => e.checkVisibility());
              if (!e) return null;
              e.scrollIntoView({{block: "nearest"}});
              const r = e.getBoundingClientRect();
              return [r.left + r.width / 2, r.top + r.height / 2];
            }})()"""
        )
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=found[0], y=found[1], button="left", clickCount=1)

    def type(self, selector, text):
        """Puts a text in place of an input's."""
        self.evaluate(f"(e => {{ e.focus(); e.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.call("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        code, text = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def close(self):
        self.browser.pages.pop(self.session, None)
        self.browser.call("Target.closeTarget", targetId=self.target)
