#!/usr/bin/env python3
"""Looking must not change what is looked at: what the model computes does not depend on which tensors are recorded."""
import numpy as np

from support import Capture, Scratch, capture, main

CHIPSETS = ["gen1", "gen3"]


class Observing(Scratch):
    def check(self, model):
        """The model's output is bit-equal when all edges are exposed, when only the outputs are, and (as the floats of the
        same codes) when the file is run untouched."""
        for which in ("all", "outputs", "none"):
            capture(model, [f"htp-sim:{name}" for name in CHIPSETS], ["uniform:30"], self.folder / which, "--edges", which,
                    "-j", "2")
        for name in CHIPSETS:
            opened = {}
            for which in ("all", "outputs", "none"):
                opened[which] = Capture(self.folder / which / f"{name}.h5")
                self.addCleanup(opened[which].close)
            logits = {which: c.file["/probes/uniform/outputs/logits"] for which, c in opened.items()}
            codes = logits["all"][:]
            self.assertEqual(codes.tobytes(), logits["outputs"][:].tobytes(), name)
            scale, zero_point = (logits["all"].attrs[key][0] for key in ("scale", "zero_point"))
            reals = (codes.astype(np.int64) - zero_point).astype(np.float32) * scale
            self.assertEqual(logits["none"].dtype, np.float32)
            self.assertEqual(reals.tobytes(), logits["none"][:].tobytes(), name)
            self.assertGreater(len(np.unique(codes)), 10)

    def test_cnn(self):
        """One session holds all edges."""
        self.check("cnn.w8a8.onnx")

    def test_vit(self):
        """All edges at once would move nodes to the CPU, so they are recorded in two sessions."""
        self.check("vit.w8a8.onnx")
        with Capture(self.folder / "all" / "gen3.h5") as opened:
            self.assertEqual(int(opened.file["runtime"].attrs["passes"]), 2)


if __name__ == "__main__":
    main()
