"""Headless Chromium, controlled over its pipe (the DevTools protocol). It runs in real time,
because a page that listens to events would stop a virtual clock."""

import base64
import contextlib
import json
import os
import time

from harness import BOUND_SECONDS, expect_true, need_tools, wait_for


def has_process_of(folder):
    """Returns whether a process has `folder` in its command line. The browser's child
    processes outlive the first process by a moment."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{number}/cmdline", "rb") as file:
            if os.fsencode(folder) in file.read():
                return True
    return False


class Browser:
    def __init__(self, box, url, width=1280, height=900):
        need_tools("chromium")
        self.folder = box.path("browser")
        told, self.tell = os.pipe()
        self.hear, says = os.pipe()
        box.closing.callback(os.close, self.tell)
        box.closing.callback(os.close, self.hear)
        box.spawn(["bash", "-c", f'exec "$@" 3<&{told} 4>&{says}', "bash",
                   "chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
                   "--remote-debugging-pipe", f"--user-data-dir={self.folder}",
                   "--hide-scrollbars", f"--window-size={width},{height}", "about:blank"],
                  "browser.log", pass_fds=(told, says))
        box.closing.callback(self.close)
        os.close(told)
        os.close(says)
        self.heard, self.number, self.session = b"", 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=url)

    def ask(self, method, **parameters):
        """Returns the browser's answer; skips its events."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.tell, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline:
            while b"\0" in self.heard:
                one, self.heard = self.heard.split(b"\0", 1)
                said = json.loads(one)
                if said.get("id") == self.number:
                    expect_true("result" in said, f"{method}: {said}")
                    return said["result"]
            self.heard += os.read(self.hear, 1 << 20)
        raise TimeoutError(method)

    def close(self):
        """Ends the browser and waits for all of its processes, so that none writes into its folder
        later."""
        self.session = None
        with contextlib.suppress(OSError):
            self.ask("Browser.close")
        wait_for(lambda: not has_process_of(self.folder), "the browser to end")

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression,
                        returnByValue=True)["result"].get("value")

    def wait(self, expression, what):
        return wait_for(lambda: self.value(expression), f"{what} ({expression}) in the browser")

    def shown(self):
        """The HTML of the page before its script."""
        return self.value("document.documentElement.outerHTML").split("<script>")[0]

    def picture(self, path):
        """Writes a picture of the whole page to `path`."""
        png = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(png))
