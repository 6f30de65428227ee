"""A headless Chromium by way of chromedriver, with the standard library alone: what test_browser.sh drives."""
import base64
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request


class Browser:
    def __init__(self, width=1440, height=1000, script=True):
        self.folder = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True,
                                       stderr=subprocess.DEVNULL)
        self.session = None
        port = None
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                port = found.group(1)
                break
        if port is None:
            raise RuntimeError("chromedriver does not start")
        self.base = f"http://127.0.0.1:{port}"
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                     "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}"]
        if not script:
            arguments.append("--blink-settings=scriptEnabled=false")
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments},
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = made["sessionId"]

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def at(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def visit(self, address):
        self.at("POST", "/url", {"url": address})

    def open(self, path):
        self.visit("file://" + os.path.abspath(path))

    def blank(self):
        """Leaves the page that a new browser shows, and what it asked for."""
        self.visit("about:blank")
        self.log("performance")
        self.log("browser")

    def run(self, script, *args):
        return self.at("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, *args, seconds=60):
        """What the script gives to its last argument, a function."""
        self.at("POST", "/timeouts", {"script": seconds * 1000})
        return self.at("POST", "/execute/async", {"script": script, "args": list(args)})

    def cdp(self, command, parameters):
        return self.at("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height):
        """Of the inner window, so that widths below the window's own least are met too."""
        self.cdp("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def media(self, media="", dark=None):
        features = [] if dark is None else [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.cdp("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def log(self, kind):
        return self.at("POST", "/se/log", {"type": kind})

    def shot(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.at("GET", "/screenshot")))

    def actions(self, steps, kind="pointer", name="mouse"):
        source = {"type": kind, "id": name, "actions": steps}
        if kind == "pointer":
            source["parameters"] = {"pointerType": "mouse"}
        self.at("POST", "/actions", {"actions": [source]})

    def hover(self, x, y):
        self.actions([{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}])

    def click(self, x, y):
        self.actions([{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)},
                      {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}])

    def key(self, *keys):
        steps = []
        for one in keys:
            steps += [{"type": "keyDown", "value": one}, {"type": "keyUp", "value": one}]
        self.actions(steps, "key", "keys")

    def close(self):
        try:
            if self.session:
                self.call("DELETE", f"/session/{self.session}")
        finally:
            self.driver.terminate()
            self.driver.wait(10)
            time.sleep(0.1)
            try:
                self.folder.cleanup()
            except OSError:
                pass
