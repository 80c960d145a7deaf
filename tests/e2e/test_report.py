"""npudiff report and --report: one HTML page, in Debian's Chromium: what it shows, with and without scripts, that it asks
for nothing and complains about nothing, and that no name gets out of its place."""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

import numpy as np

from browser import Browser, axe_source, is_missing
from support import MODELS, capture, main, npudiff, some_digits, unittest
from write_capture import Edge, write_capture

VIEWS = ["verdict", "tensors", "flow", "budget", "samples", "where"]
HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\"'>&lt;&amp;`${alert(3)}", "a/b\u202etxt.gpj",
           "\u05d0\u05d1\u05d2/\u0634\u0645\u0633", "--><!--]]>", "n" * 300, "javascript:alert(4)", "constructor", "__proto__"]


def setUpModule():
    global browser
    browser = Browser()


def tearDownModule():
    browser.close()


def hostile_captures(folder):
    """Two devices that differ in every tensor, whatever they are called."""
    random = np.random.default_rng(18)
    edges = [Edge(name, "uint8", (4,), [0.5], [3], is_output=i == 0) for i, name in enumerate(HOSTILE)]
    ref = {name: random.integers(0, 200, (6, 4), np.uint8) for name in HOSTILE}
    test = {name: data + random.integers(1, 50, data.shape, np.uint8) for name, data in ref.items()}
    return [write_capture(folder / f"{i}.h5", device, edges, {"</script>\"'": tensors})
            for i, (device, tensors) in enumerate([("<b>one</b>", ref), ("</bdi>'\"<svg onload=alert(5)>", test)])]


class Page(unittest.TestCase):
    """What every page must keep."""

    def check(self, path, views=VIEWS):
        browser.open(path)
        self.assertEqual(browser.complaints(), [])
        self.assertEqual(browser.requests(), [])
        self.assertEqual(browser.run("return [...document.querySelectorAll('main > section')].map(e => e.id)"), views)
        self.assertEqual(browser.run("return document.querySelectorAll('[style]:not(.uplot, .uplot *), [onload], [onerror], "
                                     "main script, base, iframe, object').length"), 0)
        for table in browser.run("return [...document.querySelectorAll('main table:not(.inner)')].map(t => [t.caption && "
                                 "t.caption.textContent, [...t.querySelectorAll('th')].filter(h => !h.scope).length])"):
            self.assertTrue(table[0])
            self.assertEqual(table[1], 0)

    def check_accessible(self, path):
        source = axe_source()
        for scheme in ("light", "dark"):
            browser.emulate(scheme=scheme)
            browser.open(path)
            browser.run("for (const one of document.querySelectorAll('details')) one.open = true;"
                        "const cell = document.querySelector('.heat tr[data-t] td:last-child'); if (cell) cell.click()")
            self.assertEqual(browser.violations(source), [], scheme)
        browser.emulate()


class Digits(Page):
    """Three devices of the golden classifier: the reference, a healthy NPU, and one with a fault; all views."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.quantised, cls.float_model = MODELS / "cnn.w8a8.onnx", MODELS / "cnn.float.onnx"
        capture("cnn.w8a8.onnx", ["cpu", "emu:htp-v73", "emu:htp-v73,stale@residual/conv"],
                [some_digits(cls.path / "digits.npz", 40)], cls.path / "captures")
        cls.captures = [cls.path / "captures" / name for name in
                        ("cpu.h5", "emu-htp-v73.h5", "emu-htp-v73-stale-residual-conv.h5")]
        cls.page = cls.path / "report.html"
        npudiff("report", "--quantised", cls.quantised, "--float", cls.float_model, *cls.captures, "-o", cls.page, "-q",
                "--title", "digits")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        browser.resize(1400)
        browser.emulate()

    def results(self):
        """What the commands print, as files."""
        compare, explain = self.path / "compare.json", self.path / "explain.json"
        if not compare.exists():
            compare.write_text(npudiff("compare", *self.captures, "--json", expect=1))
            explain.write_text(npudiff("explain", "--quantised", self.quantised, *self.captures, "--json", expect=1))
        return compare, explain

    def test_page_keeps_to_itself(self):
        self.check(self.page)
        self.check_accessible(self.page)

    def test_policy_allows_what_is_there_and_nothing_else(self):
        text = self.page.read_text()
        policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertNotIn("http", policy)
        browser.open(self.page)
        browser.run("const s = document.createElement('script'); s.textContent = 'window.gotIn = 1'; document.body.append(s);"
                    "document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\" onclick=\"1\">x</p>')")
        self.assertIsNone(browser.run("return window.gotIn ?? null"))
        self.assertTrue(any("Content Security Policy" in line for line in browser.complaints()))

    def test_verdict_names_the_fault_and_what_it_does(self):
        browser.open(self.page)
        self.assertEqual(browser.texts("h1"), ["digits"])
        self.assertEqual(browser.texts(".card .word"), ["Faulty"])
        card = browser.texts(".card")[0]
        self.assertIn("residual/conv", card)
        self.assertRegex(card, r"predicts a different class at logits for \d+ of 40 inputs")
        self.assertIn("npudiff reduce", card)
        rows = browser.texts("#verdict tbody tr")
        self.assertEqual(len(rows), 3)
        self.assertIn("healthy", rows[1])
        self.assertIn("faulty", rows[2])

    def test_heat_map_has_the_numbers_of_compare(self):
        compare, _ = self.results()
        comparison = json.loads(compare.read_text())
        browser.open(self.page)
        tensors = comparison["tensors"]
        self.assertEqual(browser.texts(".heat tr[data-t] th a"), [t["name"] for t in tensors])
        for i, tensor in enumerate(tensors):
            cells = browser.texts(f".heat tr[data-t='{i}'] td:nth-child(n+4)")
            for cell, pair in zip(cells, [p for p in tensor["pairs"] if p["ref"] == 0]):
                tenths = (2000 * pair["differing"] + pair["elements"]) // (2 * pair["elements"]) # half up, as texts have it
                wanted = "=" if pair["differing"] == 0 else f"{tenths / 10:.1f}\u202f% {pair['max_lsb']} LSB"
                if pair["differing"] == 0 or 0.01 <= pair["share"] <= 0.999:
                    self.assertEqual(cell.removeprefix("fault "), wanted)
        # The faulty layer is marked, on the faulty device alone, and its details are open.
        self.assertEqual(len(browser.texts(".heat td.faulty")), 1)
        self.assertEqual(browser.texts(".heat tr:has(td.faulty) th a"), ["residual/conv"])
        self.assertEqual([t.split(" ")[0] for t in browser.texts("details[open] > summary")],
                         ["emu:htp-v73,stale@residual/conv", "Layers"])

    def test_heat_map_can_be_filtered_ordered_coloured_and_folded(self):
        browser.open(self.page)
        names = browser.visible_texts(".heat tr[data-t] th a")
        browser.run("const f = document.getElementById('filter'); f.value = 'RELU'; f.dispatchEvent(new Event('input'))")
        self.assertEqual(browser.visible_texts(".heat tr[data-t] th a"), [n for n in names if "relu" in n])
        self.assertIn(f"of {len(names)} tensors", browser.texts(".tools .status")[0])
        browser.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'))")
        browser.click("#only")
        self.assertEqual(browser.visible_texts(".heat tr[data-t] th a"), names[1:])
        browser.click("#only")
        choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
        browser.run(choose, "order", "share")
        shares = [float(s) for s in browser.run("return [...document.querySelectorAll('.heat tr[data-t]')].map(r => r.dataset.s)")]
        self.assertEqual(shares, sorted(shares, reverse=True))
        browser.run(choose, "order", "name")
        self.assertEqual(browser.visible_texts(".heat tr[data-t] th a"), sorted(names))
        browser.run(choose, "order", "graph")
        self.assertEqual(browser.visible_texts(".heat tr[data-t] th a"), names)
        cell = ".heat tr[data-t='6'] td:last-child"
        colour = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
        before = browser.run(colour, ".heat tr[data-t='1'] td:last-child")
        browser.run(choose, "colour", "size")
        self.assertNotEqual(browser.run(colour, ".heat tr[data-t='1'] td:last-child"), before)
        self.assertNotEqual(browser.run(colour, cell), "rgba(0, 0, 0, 0)")
        browser.click(".heat tr.block button")
        self.assertEqual(browser.texts(".heat tr.block button[aria-expanded='false']"), ["residual 2 tensors"])
        self.assertNotIn("residual/conv", browser.visible_texts(".heat tr[data-t] th a"))

    def test_details_open_by_click_key_and_link(self):
        compare, _ = self.results()
        tensor = next(t for t in json.loads(compare.read_text())["tensors"] if t["name"] == "residual/relu")
        pair = tensor["pairs"][1]
        browser.open(self.page)
        browser.click(f".heat tr[data-t='6'] td:last-child")
        panel = browser.wait_for(".panel")[0]
        self.assertTrue(panel.startswith("residual/relu"))
        self.assertIn(f"{pair['differing']:,}".replace(",", "\u202f") + " of", panel)
        self.assertIn("4 to 7", panel)
        shown = browser.run("return [...document.querySelector('.panel .bars-list').children].map(e => e.textContent)")
        self.assertEqual(sum(int(n.replace("\u202f", "")) for n in shown[2::3]), pair["elements"])
        self.assertEqual(len(browser.texts(".panel table")), 2)
        browser.press("Escape")
        self.assertEqual(browser.visible_texts(".panel"), [])
        self.assertEqual(browser.run("return document.activeElement.id"), "tensor-7")
        browser.press("ArrowUp")
        self.assertEqual(browser.run("return document.activeElement.id"), "tensor-6")
        browser.press("Enter")
        self.assertTrue(browser.wait_for(".panel")[0].startswith("residual/conv"))
        browser.open(self.page, "#tensor-2")
        self.assertTrue(browser.wait_for(".panel")[0].startswith("stem/relu"))
        self.assertEqual(browser.complaints(), [])

    def test_tables_are_sorted_by_their_heads(self):
        browser.open(self.page)
        head = "#samples table.sortable thead th:nth-child({}) button"
        column = "return [...document.querySelectorAll('#samples table.sortable')][0].tBodies[0].rows.length ? " \
                 "[...document.querySelectorAll('#samples table.sortable')[0].tBodies[0].rows].map(r => Number(r.cells[3].dataset.v)) : []"
        browser.click(head.format(4))
        rising = browser.run(column)
        self.assertEqual(rising, sorted(rising))
        self.assertEqual(browser.run("return document.querySelector('#samples th[aria-sort]').getAttribute('aria-sort')"), "ascending")
        browser.click(head.format(4))
        self.assertEqual(browser.run(column), sorted(rising, reverse=True))
        self.assertLess(min(rising), max(rising))

    def test_flow_draws_the_graph_and_its_path(self):
        browser.open(self.page)
        self.assertEqual(len(browser.texts(".graph .node")), 10)
        self.assertEqual(len(browser.texts(".graph .edge")), 10)
        self.assertIn("residual/conv", browser.texts(".graph .node.fail")[0])
        browser.run("document.querySelector('.graph .node.fail').focus()")
        browser.press("Enter")
        self.assertIn("image", browser.texts(".graph .node:not(.dim)")[0])
        self.assertEqual(len(browser.texts(".graph .edge.path")), 4)
        browser.run("const s = document.getElementById('flow-device'); s.value = '0'; s.dispatchEvent(new Event('change'))")
        self.assertEqual(browser.texts(".graph .node.fail"), [])
        self.assertEqual(browser.complaints(), [])

    def test_budget_shows_shares_that_add_up(self):
        browser.open(self.page)
        bars = browser.run("return [...document.querySelectorAll('#budget > .scroll .bar')].map(b => "
                           "[...b.children].reduce((sum, r) => sum + Number(r.getAttribute('width')), 0))")
        self.assertEqual(len(bars), 3)
        for width in bars:
            self.assertAlmostEqual(width, 600, delta=1)

    def test_quantisation_names_layers_causes_and_remedies(self):
        printed = npudiff("explain", "--quantised", self.quantised, "--float", self.float_model, *self.captures, "--json", expect=1)
        found = json.loads(printed)["quantisation"]
        layers = {layer["name"]: layer for layer in found["layers"]}
        browser.open(self.page)
        heading, sentence = browser.texts("#budget h3")[-1], browser.texts("#budget > p")[-1]
        self.assertEqual(heading, "What the quantisation costs, layer by layer")
        self.assertIn(f"{found['output_sqnr_db']:.3g} dB at the outputs", sentence)
        rows = browser.run("return [...document.querySelectorAll('#budget > .scroll:last-of-type tbody tr')].map(r => "
                           "[...r.children].map(c => c.textContent))")
        self.assertEqual([row[0] for row in rows], found["ranked"])
        for row in rows:
            layer = layers[row[0]]
            self.assertEqual((row[1], row[5]), (layer["op_type"], layer["text"] or ""))
            for remedy in layer["remedies"][:2]:
                self.assertIn(remedy["text"], row[6])

    def test_samples_show_inputs_predictions_and_outputs(self):
        compare, _ = self.results()
        row = json.loads(compare.read_text())["accuracy"][0]
        browser.open(self.page)
        rows = browser.texts("#samples .samples tbody tr")
        self.assertEqual(len(browser.run("return [...document.querySelectorAll('.samples > tbody > tr')]")), row["n_changed_samples"])
        sizes = browser.run("return [...document.querySelectorAll('.samples img')].map(i => [i.naturalWidth, i.naturalHeight])")
        self.assertEqual(set(map(tuple, sizes)), {(8, 8)})
        self.assertEqual(len(sizes), row["n_changed_samples"])
        labels = np.load(self.path / "digits.npz")["labels"] if "labels" in np.load(self.path / "digits.npz") else None
        first = row["changed_samples"][0]
        self.assertTrue(rows[0].startswith(str(first["sample"])))
        self.assertNotEqual(first["predictions"][0], first["predictions"][2])
        if labels is not None:
            self.assertEqual(first["label"], labels[first["sample"]])

    def test_changed_samples_are_those_of_the_captures(self):
        from support import Capture
        compare, _ = self.results()
        row = json.loads(compare.read_text())["accuracy"][0]
        outputs = []
        for path in self.captures:
            with Capture(path) as one:
                outputs.append(one.values("digits", "logits").reshape(40, -1))
        classes = [o.argmax(axis=1) for o in outputs]
        wanted = {i for i in range(40) if any(c[i] != classes[0][i] for c in classes[1:])}
        self.assertEqual(row["n_changed_samples"], len(wanted))
        self.assertEqual({s["sample"] for s in row["changed_samples"]}, wanted)
        for sample in row["changed_samples"]:
            self.assertEqual(sample["predictions"], [int(c[sample["sample"]]) for c in classes])

    def test_page_is_complete_without_scripts_and_on_paper(self):
        browser.emulate(scripts=False)
        browser.command("Page.navigate", url=self.page.as_uri())
        text = browser.command("DOM.getDocument", depth=-1)
        body = json.dumps(text)
        for word in ("residual/conv", "Predictions right", "Introduced here", "95 % interval", "two modes" if "two modes" in body else "Latency"):
            self.assertIn(word, body)
        browser.emulate()
        browser.emulate(media="print")
        browser.open(self.page)
        self.assertFalse(browser.run("return document.querySelector('nav').checkVisibility()"))
        self.assertEqual(browser.run("return getComputedStyle(document.querySelector('.tall')).overflowY"), "visible")
        self.assertTrue(browser.pdf().startswith(b"%PDF"))
        browser.emulate()

    def test_small_window_needs_no_sideways_scrolling_of_the_page(self):
        for width in (1400, 400):
            browser.resize(width)
            browser.open(self.page)
            self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), width)

    def test_results_make_the_same_page_as_captures(self):
        page = self.path / "results.html"
        compare, explain = self.results()
        npudiff("report", compare, explain, "-o", page, "-q")
        self.check(page)
        shown = browser.texts(".heat tr[data-t]")
        browser.open(self.page)
        self.assertEqual(browser.texts(".heat tr[data-t]"), shown)

    def test_the_model_that_the_captures_state_gives_its_views(self):
        page = self.path / "found.html"
        npudiff("report", *self.captures[:2], "-o", page, "-q")
        self.check(page)
        self.assertEqual(len(browser.texts(".absent .command")), 1) # the error budget needs the float model
        self.assertNotEqual(browser.texts(".graph"), [])

    def test_views_without_data_say_which_command_gives_it(self):
        page, model = self.path / "two.html", self.path / "gone.onnx"
        shutil.copy(self.quantised, model)
        capture(model, ["cpu", "emu:htp-v73"], [some_digits(self.path / "few.npz", 4)], self.path / "gone")
        model.unlink()
        npudiff("report", self.path / "gone/cpu.h5", self.path / "gone/emu-htp-v73.h5", "-o", page, "-q")
        self.check(page)
        self.assertEqual(len(browser.texts(".absent .command")), 3)
        for command in browser.texts(".absent .command"):
            self.assertTrue(command.startswith("npudiff "))
        self.assertEqual(browser.texts(".graph"), [])

    def test_same_results_make_the_same_bytes(self):
        compare, explain = self.results()
        pages = []
        for i in range(2):
            page = self.path / f"again{i}.html"
            npudiff("report", compare, explain, "-o", page, "-q", env=dict(os.environ, SOURCE_DATE_EPOCH="1700000000"))
            pages.append(page.read_bytes())
        self.assertEqual(pages[0], pages[1])
        self.assertIn(b"2023-11-14", pages[0])


class Hostile(Page):
    """Names that would be markup, scripts or another direction of writing where they are not kept in their place."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        browser.resize(1400)
        browser.emulate()

    def tearDown(self):
        self.folder.cleanup()

    def test_names_stay_text(self):
        page = self.path / "report.html"
        npudiff("report", *hostile_captures(self.path), "-o", page, "-q", "--title", "</title><script>alert(6)</script>")
        self.check(page)
        shown = [re.sub("[\u202a-\u202e\u2066-\u2069]", lambda c: f"\\u{ord(c[0]):04x}", name) for name in HOSTILE]
        self.assertEqual(browser.texts(".heat tr[data-t] th a"), shown)
        self.assertEqual(browser.run("return document.title"), "</title><script>alert(6)</script> - npudiff report")
        for i in range(len(HOSTILE)):
            browser.open(page, f"#tensor-{i + 1}")
            self.assertTrue(browser.wait_for(".panel")[0].startswith(shown[i]))
            self.assertEqual(browser.complaints(), [])
        self.check_accessible(page)
        for width in (1400, 400):
            browser.resize(width)
            browser.open(page)
            self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), width)

    def test_documents_of_strangers_are_errors_or_pages(self):
        page, result = self.path / "report.html", self.path / "result.json"
        for text, expected in (("", 2), ("[]", 2), ("{}", 2), ('{"kind": "other"}', 2),
                               ('{"partings": [], "devices": []}', 2), # no kind
                               ('{"kind": "comparison", "partings": 1, "devices": "x", "tensors": {"a": 1}, "verdict": []}', 2),
                               ('{"kind": "comparison", "devices": [{}, 3, {"group": -1}]}', 2),
                               ('{"kind": "golden_checks", "checks": [{}, 1]}', 2),
                               ('{"kind": "golden_history", "charts": [{"chipsets": ["cpu"], "sdks": [0.5, "qairt-2.51.0"]}]}', 2),
                               ('{"kind": "golden_history", "charts": [{"sdks": ["qairt-2.51.0"], "chipsets": [null]}]}', 2),
                               ('{"kind": "golden_history", "format": 3}', 2),
                               # as another version may write them: members may be missing, and unknown ones are there
                               ('{"kind": "comparison", "partings": [], "devices": [{}, {"group": 0, "new": [1]}], "tensors": [{"pairs": '
                                '[{"ref": 0, "test": 1, "share": "NaN", "worst": [{}]}]}], "accuracy": [{"labels": true}]}', 0),
                               ('{"kind": "explanation", "devices": [{"layers": [{"inputs": [0, 9], "name": "a"}]}]}', 0),
                               ('{"kind": "placement", "operators": [], "devices": [{"cuts": [{"from": 7}], "pieces": [{}]}]}', 0),
                               ('{"kind": "latency", "series": [{"runs_us": [1, null, 3], "timed": {"p99_us": 2, "max_us": 3}}]}', 0),
                               ('{"kind": "qualification", "cases": [{"gate": 99}], "models": [{}]}', 0),
                               ('{"kind": "golden_history", "charts": [{"sdks": ["a"], "tensors": [{"n_steps": 1, "values": [[0], [0, 1]]}]}]}', 0),
                               ('{"kind": "golden_checks", "checks": [{}]}', 0)):
            with self.subTest(text=text):
                result.write_text(text)
                npudiff("report", result, "-o", page, "-q", expect=expected)
                if expected == 0:
                    self.check(page)
        npudiff("report", result, result, "-o", page, expect=2)
        own = json.loads((MODELS.parent / "fuzz/document/golden_history.json").read_text())
        result.write_text(json.dumps(own))
        npudiff("report", result, "-o", page, "-q")
        del own["charts"] # of this version it lacks what its description asks for
        result.write_text(json.dumps(own))
        self.assertIn("is damaged: $.charts is missing, though docs/reference/schemas/golden_history.json describes it [ND-1316]",
                      npudiff("report", result, "-o", page, expect=None).stderr)

    def test_other_files_are_not_overwritten(self):
        captures = hostile_captures(self.path)
        before = captures[0].read_bytes()
        done = npudiff("report", *captures, "-o", captures[0], expect=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no report", done.stderr)
        self.assertEqual(captures[0].read_bytes(), before)


class Commands(Page):
    """--report of each command, and the folder of a campaign."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.model = MODELS / "mul.u8.onnx"
        capture("mul.u8.onnx", ["cpu", "emu:floor"], ["ramp"], cls.path, "--repeats", 3)
        cls.captures = [cls.path / "cpu.h5", cls.path / "emu-floor.h5"]
        cls.page = cls.path / "report.html"
        browser.resize(1400)
        browser.emulate()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def report(self, *arguments, expect=0):
        """The page that the command writes beside what it prints, which is as it is without."""
        self.page.unlink(missing_ok=True)
        printed = npudiff(*arguments, "--report", self.page, expect=expect)
        self.assertEqual(npudiff(*arguments, expect=expect), printed)
        self.check(self.page)
        return printed

    def test_compare(self):
        self.report("compare", *self.captures, expect=1)
        self.assertEqual(browser.texts(".heat tr[data-t] th a"), ["product"])
        npudiff("compare", *self.captures, "-q", "--report", self.page, expect=1)
        self.check(self.page)
        npudiff("compare", *self.captures, "--json", "--part", "1/2", "--report", self.page, expect=2)

    def test_explain(self):
        self.report("explain", "--quantised", self.model, self.captures[1], "-q", expect=0)
        self.assertEqual(browser.texts(".card .word"), ["Healthy"])
        self.assertIn("product", browser.texts("#flow tbody tr")[-1])

    def test_placement(self):
        self.report("placement", self.model, *self.captures)
        self.assertIn("Mul", " ".join(browser.texts("#where tbody tr")))

    def test_latency_draws_every_series(self):
        times = self.path / "times.txt"
        times.write_text("".join(f"{100 + (i * 37) % 11 + (60 if i % 5 == 0 else 0)}\n" for i in range(300)))
        npudiff("latency", times, "--report", self.page, expect=None)
        self.check(self.page)
        self.assertEqual(len(browser.run("return [...document.querySelectorAll('.strip canvas')]")), 1)
        self.check_accessible(self.page)
        series = json.loads(npudiff("latency", times, "--json", expect=None).stdout)["series"][0]
        self.assertEqual(series["runs_us"], [float(line) for line in times.read_text().split()])

    def test_golden_check_and_diff(self):
        store = self.path / "store"
        npudiff("golden", "add", store, self.captures[0], "--by", "test")
        self.report("golden", "check", store, *self.captures, expect=4)
        self.assertEqual(len(browser.texts(".card")), 2)
        self.assertIn("same", browser.texts(".card .word")[0])
        npudiff("golden", "list", store, "--report", self.page, expect=2)

    def test_qualify_and_its_folder(self):
        campaign, out = self.path / "campaign.yaml", self.path / "release"
        campaign.write_text(f"""name: release </h1>
models:
  - {{quantised: {self.model}, probes: [ramp]}}
  - {{quantised: {MODELS / 'cnn.w8a8.onnx'}, probes: [ramp]}}
devices: [cpu, "emu:floor"]
policy: [{{gate: finalize}}, {{gate: lsb, max: 0}}]
""")
        npudiff("qualify", campaign, "-o", out, "-q", "--report", self.page, expect=1)
        views = [prefix + view for prefix in ("m2-", "m3-") for view in VIEWS[1:]]
        self.check(self.page, ["verdict", *views])
        self.assertEqual(browser.texts("h1"), ["release </h1>"])
        self.assertEqual(browser.texts(".card .word")[0], "Not ready")
        cells = browser.texts("table.matrix tbody td .badge")
        self.assertEqual(len(cells), 4)
        self.assertIn("fails", cells)
        # Each model is explained, too: the captures say where it is.
        self.assertEqual(self.page.read_text().count("every layer that was examined follows known arithmetic"), 2)
        self.check_accessible(self.page)
        again = self.path / "again.html"
        npudiff("report", out, "-o", again, "-q")
        self.check(again, ["verdict", *views])


if __name__ == "__main__":
    if is_missing():
        print(f"1..0 # SKIP {is_missing()}")
        sys.exit(0)
    main()
