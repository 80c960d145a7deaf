"""What tools/demo prints in the end is made from what compare and explain print today."""
import pathlib
import subprocess
import sys

from support import DIGITS, MODELS, Scratch, capture, main, npudiff

TABLE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "demo_table.py"


class Demo(Scratch):
    def test_a_row_for_each_group_and_a_sentence_for_the_model(self):
        folder = self.folder / "cnn.w8a8"
        folder.mkdir()
        devices = ["exact", "emu:htp-v73", "emu:htp-v73,stale@residual/conv"]
        capture("cnn.w8a8.onnx", devices, [DIGITS], self.folder / "out")
        captures = sorted((self.folder / "out").glob("*.h5"), key=lambda path: path.name != "exact.h5")
        (folder / "compare.json").write_text(npudiff("compare", *captures, "--json", expect=1))
        (folder / "explain.json").write_text(npudiff("explain", "--quantised", MODELS / "cnn.w8a8.onnx", *captures, "--json",
                                                     "--effect-samples", 0, "--samples", 50, expect=1))
        text = subprocess.run([sys.executable, TABLE, self.folder, "cnn.w8a8"], check=True, capture_output=True, text=True).stdout
        titles, *rows, empty, sentence = text.splitlines()
        self.assertTrue(titles.startswith("model") and empty == "", text)
        self.assertEqual(len(rows), 3, text)
        self.assertIn("(the reference)", rows[0])
        self.assertEqual([row.endswith("a fault") and not row.endswith("no fault") for row in rows].count(True), 1, text)
        chips = [word for chip in ("htp-v69", "htp-v73") for word in ("--verify", f"emu:{chip}")]
        (folder / "align.json").write_text(npudiff("align", MODELS / "cnn.w8a8.onnx", "-p", DIGITS, *chips, "--samples", 40, "--json"))
        text = subprocess.run([sys.executable, TABLE, self.folder, "cnn.w8a8"], check=True, capture_output=True, text=True).stdout
        self.assertRegex(text.splitlines()[-1], r"^cnn\.w8a8, aligned: emu:htp-v69 = emu:htp-v73, every tensor; 9 of 9 layers are proven; "
                                                r"\d+ of 40 right, \d+ before\.$")  # fmt: skip
        self.assertRegex(sentence, r"^cnn\.w8a8: a device has a fault; at most \d+ predicted classes change; 3 different results\.$")


if __name__ == "__main__":
    main()
