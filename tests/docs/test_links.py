"""Every relative link and anchor of the pages, and every page that a comment of the code cites, exists."""
import pathlib
import re
import tempfile
import unittest

import links
import support

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Pages(unittest.TestCase):
    maxDiff = None
    tree = links.Tree(ROOT)

    def none(self, found):
        self.assertEqual("", "\n".join(found))

    def test_links_lead_somewhere(self):
        self.none(self.tree.broken_links())

    def test_comments_cite_what_exists(self):
        self.none(self.tree.broken_citations())

    def test_index_leads_to_every_page(self):
        self.none(self.tree.unreachable())

    def test_paths_in_text_exist(self):
        self.none(self.tree.missing_paths({"src", "include", "tools", "tests", "golden", "docs", "cross"}))

    def test_architecture_has_the_wings_in_their_order(self):
        built = re.findall(r"^subdir\('(\w+)'\)", (ROOT / "src/meson.build").read_text(), re.MULTILINE)
        for page in ("docs/architecture.md", "src/README.md"):
            told = re.findall(r"^\| `(\w+)` \|", (ROOT / page).read_text(), re.MULTILINE)
            self.assertEqual([*built, "lab"], told, page)
        for wing in built:
            self.assertTrue((ROOT / "src" / wing / "README.md").exists(), wing)


class Checker(unittest.TestCase):
    """The check finds what it is for: a small tree with one fault at a time."""

    GOOD = {"docs/index.md": "# Index\n[a page](a.md#two-words) `src/x.c`\n", "docs/a.md": "# A\n\n## Two words\n",
            "src/x.c": "/* docs/a.md#a and\n * #two-words. */\n"}

    def faults(self, **changes):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (self.GOOD | changes).items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            tree = links.Tree(pathlib.Path(folder).resolve())
            return [*tree.broken_links(), *tree.broken_citations(), *tree.unreachable(), *tree.missing_paths({"src"})]

    def assert_one(self, word, **changes):
        found = self.faults(**changes)
        self.assertEqual(1, len(found), found)
        self.assertIn(word, found[0])

    def test_good_tree_has_no_fault(self):
        self.assertEqual([], self.faults())

    def test_link_without_file_is_found(self):
        self.assert_one("b.md", **{"docs/a.md": "# A\n[b](b.md)\n## Two words\n"})

    def test_link_without_anchor_is_found(self):
        self.assert_one("#three", **{"docs/a.md": "# A\n[here](#three)\n## Two words\n"})

    def test_citation_without_page_is_found(self):
        self.assert_one("docs/b.md", **{"src/x.c": "/* docs/b.md */\n"})

    def test_citation_without_anchor_on_the_next_line_is_found(self):
        self.assert_one("'three'", **{"src/x.c": "/* docs/a.md#a and\n * #three. */\n"})

    def test_page_cited_by_its_old_name_is_found(self):
        self.assert_one("METRICS.md", **{"src/x.c": "/* METRICS.md section 3 */\n"})

    def test_unreachable_page_is_found(self):
        self.assert_one("docs/c.md", **{"docs/c.md": "# C\n"})

    def test_path_that_does_not_exist_is_found(self):
        self.assert_one("src/y.c", **{"docs/a.md": "# A\n`src/y.c`\n## Two words\n"})

    def test_links_in_code_are_none(self):
        self.assertEqual([], self.faults(**{"docs/a.md": "# A\n## Two words\n```\n[x](y.md)\n```\n`[x](y.md)`\n"}))


if __name__ == "__main__":
    support.main()
