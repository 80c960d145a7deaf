"""The commands that the pages show can be pasted: those that are marked for the suite do what the page says."""
import pathlib
import tempfile
import unittest

import blocks
import links
import support

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Pages(unittest.TestCase):
    maxDiff = None


def add_test_of(page):
    """A case for each page, in which its blocks run one after the other."""
    def test(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = blocks.Bench(ROOT, pathlib.Path(support.NPUDIFF).resolve(), folder)
            for block in blocks.blocks_of(page):
                if block.kind == "suite":
                    wrong = bench.run(block)
                    self.assertIsNone(wrong, wrong)

    setattr(Pages, f"test_{page.relative_to(ROOT)}", test)


for page in links.Tree(ROOT).pages():
    if any(block.kind == "suite" for block in blocks.blocks_of(page)):
        add_test_of(page)


class Checker(unittest.TestCase):
    def run_page(self, text):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text(text)
            (pathlib.Path(folder) / "bench").mkdir()
            bench = blocks.Bench(ROOT, "/nowhere", pathlib.Path(folder) / "bench")
            return [bench.run(block) for block in blocks.blocks_of(page)]

    def test_output_of_the_page_passes(self):
        self.assertEqual([None, None], self.run_page(
            "<!-- test: suite -->\n```sh\nseq 1 9\n```\n\n<!-- output -->\n```\n1\n...\n9\n```\n"
            "<!-- test: suite, exit 3 -->\n```sh\nexit 3\n```\n"))

    def test_other_output_is_found(self):
        self.assertIn("does not print", self.run_page(
            "<!-- test: suite -->\n```sh\necho a b\n```\n<!-- output -->\n```\na …c\n```\n")[0])

    def test_other_exit_code_is_found(self):
        self.assertIn("exit code 1", self.run_page("<!-- test: suite -->\n```sh\nfalse\necho\n```\n")[0])

    def test_marker_without_block_is_found(self):
        with self.assertRaises(ValueError):
            self.run_page("<!-- test: suit -->\n```sh\ntrue\n```\n")


if __name__ == "__main__":
    support.main()
