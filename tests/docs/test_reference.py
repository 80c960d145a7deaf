"""The pages that tools/make_reference makes are those of this program."""
import pathlib
import re
import subprocess
import sys
import unittest

import support

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import reference_constants  # noqa: E402


class Reference(unittest.TestCase):
    def test_pages_are_what_the_program_says(self):
        done = subprocess.run([sys.executable, ROOT / "tools/make_reference", "--check"], capture_output=True, text=True)
        self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))

    def test_every_command_has_its_section_and_options(self):
        page = (ROOT / "docs/reference/commands.md").read_text()
        names = re.findall(r"^  ([a-z]+) +[a-z]", support.npudiff("--help").split("\nhelp:")[0], re.M)
        self.assertGreater(len(names), 20)
        for name in names:
            section = page.split(f'<a id="{name}"></a>')[1].split("<a id=")[0]
            flags = [l.split()[0].rstrip(",") for l in support.npudiff(name, "--help").splitlines() if l.lstrip().startswith("-")]
            self.assertTrue(flags, name)
            for flag in set(flags) - {"-h"}:
                self.assertIn(flag, section, name)


class Constants(unittest.TestCase):
    """What is found in source text: constants whose comment says where they are from, and no others."""

    def found(self, text):
        return list(reference_constants.constants_of(text))

    def test_comment_before_and_behind_are_found(self):
        self.assertEqual([("near = 0.25, far = 1.0 / 8", "Chosen: as chance has it.")],
                         self.found("/* Chosen: as chance\n * has it. */\nstatic const double near = 0.25, far = 1.0 / 8;\n"))
        self.assertEqual([("limit = 3", "LSB; measured, seed 7")],
                         self.found("static const int limit = 3; /* LSB; measured, seed 7 */\n"))

    def test_comments_of_single_names_are_found(self):
        self.assertEqual([("A = 1, B = 2", "Limits. A: chosen. B: bytes.")],
                         self.found("/* Limits. */\nenum { A = 1, /* chosen */\n    B = 2, /* bytes */\n};\n"))

    def test_next_line_shares_the_comment(self):
        self.assertEqual([("A = 1", "Chosen."), ("b = 2", "Chosen.")],
                         self.found("/* Chosen. */\nenum { A = 1 };\nstatic const double b = 2;\n\nenum { C = 3 };\n"))

    def test_constant_without_a_source_is_left_out(self):
        self.assertEqual([], self.found("/* How many there are. */\nenum { N = 3 };\n"
                                        "/* Chosen: this is no number. */\nstatic const struct x y = {1};\n"))


if __name__ == "__main__":
    support.main()
