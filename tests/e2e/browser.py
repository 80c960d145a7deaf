"""A page in Debian's Chromium, driven by its own driver: what it shows, what it asks for and what it complains about."""
import base64
import json
import os
import pathlib
import time

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None

DRIVER = "/usr/bin/chromedriver"

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--no-first-run"]


def axe_source():
    """axe-core, which tools/setup --tests has put beside the runtimes."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    (path,) = (cache / "npudiff" / "axe").glob("*/axe.min.js")
    return path.read_text()


def is_missing():
    """Why there is no browser, or None. tools/setup --tests installs it where the distribution has it."""
    if webdriver is None:
        return "no python3-selenium"
    return None if os.path.exists(DRIVER) else f"no {DRIVER}"


class Browser:
    """One Chromium, for several pages one after the other."""

    def __init__(self):
        options = Options()
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_page_load_timeout(300)
        self.driver.set_script_timeout(300)

    def close(self):
        self.driver.quit()

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def resize(self, width, height=1000):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def emulate(self, media="", scheme="light", scripts=True):
        self.command("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, path, fragment=""):
        """Opens the page afresh, also when only the fragment differs."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(pathlib.Path(path).resolve().as_uri() + fragment)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", selector)

    def visible_texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility())"
                        ".map(e => e.textContent.trim())", selector)

    def wait_for(self, selector, limit_s=30):
        """The texts of what is visible, once there is any: keys and links work after the call that sends them."""
        end = time.monotonic() + limit_s
        while not (found := self.visible_texts(selector)) and time.monotonic() < end:
            time.sleep(0.02)
        return found

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).click()", selector)

    def press(self, key):
        names = {"Escape": 27, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}
        for kind in ("rawKeyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=names[key])
            if kind == "rawKeyDown" and key == "Enter":
                self.command("Input.dispatchKeyEvent", type="char", text="\r", key=key)

    def complaints(self):
        """What the console says since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """The addresses that were asked for since the page was opened, besides the page itself and data in it."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("file:", "data:", "about:"))]

    def violations(self, source):
        """What axe-core finds, as (rule, element)."""
        self.run(source + "\nwindow.axe = axe;")
        result = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done, e => done(String(e)))")
        return [(one["id"], node["html"][:200], node["failureSummary"][:300])
                for one in result["violations"] for node in one["nodes"]]

    def screenshot(self, path, most=6000):
        """The whole page, cut at so many pixels."""
        self._shoot(path, 0, 0, self.run("return innerWidth"), min(self.run("return document.documentElement.scrollHeight"), most))

    def screenshot_of(self, path, selector, most=1600):
        """One element, without what floats above it."""
        self.run("document.querySelector('.top').style.position = 'static'; scrollTo(0, 0)")
        box = self.run("const b = document.querySelector(arguments[0]).getBoundingClientRect();"
                       "return [b.x + scrollX, b.y + scrollY, b.width, b.height]", selector)
        self._shoot(path, *box[:3], min(box[3], most))

    def _shoot(self, path, x, y, width, height):
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True,
                            clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        return base64.b64decode(self.command("Page.printToPDF", preferCSSPageSize=True)["data"])
