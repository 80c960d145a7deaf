"""Files of others in src: each is as its package has it, and has its licence beside it."""
import hashlib
import pathlib
import re
import unittest

from support import main

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"


class Vendored(unittest.TestCase):
    def test_files_are_those_of_their_packages(self):
        n_files = 0
        for readme in SOURCES.rglob("vendor/README.md"):
            rows = re.findall(r"^\| `([^`]+)` \|.*`([0-9a-f]{64})` \|$", readme.read_text(), re.MULTILINE)
            licences = {path.name for path in readme.parent.glob("*.LICENSE")}
            self.assertEqual({path.name for path in readme.parent.iterdir()}, {name for name, _ in rows} | licences | {readme.name})
            for name, wanted in rows:
                self.assertEqual(hashlib.sha256((readme.parent / name).read_bytes()).hexdigest(), wanted)
                self.assertIn(name.split(".")[0] + ".LICENSE", licences)
            n_files += len(rows)
        self.assertEqual(n_files, 4)


if __name__ == "__main__":
    main()
