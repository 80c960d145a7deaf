"""The pages that tools/make_reference makes are those of this program."""
import pathlib
import subprocess
import sys
import unittest

import support

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Reference(unittest.TestCase):
    def test_pages_are_what_the_program_says(self):
        done = subprocess.run([sys.executable, ROOT / "tools/make_reference", "--check"], capture_output=True, text=True)
        self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))

    def test_every_command_has_its_section_and_options(self):
        page = (ROOT / "docs/reference/commands.md").read_text()
        for line in support.npudiff("--help").split("commands:\n")[1].split("\n\n")[0].splitlines():
            name = line.split()[0]
            section = page.split(f'<a id="{name}"></a>')[1].split("<a id=")[0]
            flags = [l.split()[0].rstrip(",") for l in support.npudiff(name, "--help").splitlines() if l.lstrip().startswith("-")]
            self.assertTrue(flags, name)
            for flag in set(flags) - {"-h"}:
                self.assertIn(flag, section, name)


if __name__ == "__main__":
    support.main()
