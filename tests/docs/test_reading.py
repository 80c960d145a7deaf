"""The table of docs/results/reading.md: every line that it shows is one that the program prints."""
import pathlib
import subprocess
import sys
import unittest

import support

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Reading(unittest.TestCase):
    def test_lines_of_the_page_are_printed(self):
        done = subprocess.run([sys.executable, ROOT / "tools/studies/reading", "--check"], capture_output=True, text=True)
        self.assertEqual((0, ""), (done.returncode, done.stdout + done.stderr))


if __name__ == "__main__":
    support.main()
