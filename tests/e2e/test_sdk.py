#!/usr/bin/env python3
"""Two SDK versions on one simulated chipset: what changed between them is found, and nothing else is."""
import numpy as np

from support import MODELS, Scratch, capture, compare, info, main, some_digits

OLD, NEW = "gen3@qairt-2.50.40", "gen3@qairt-2.51.0"


class Sdk(Scratch):
    def captures(self, model, probe):
        capture(model, [f"htp-sim:{OLD}", f"htp-sim:{NEW}"], [probe], self.folder / "out", "-j", "2")
        paths = [self.folder / "out" / f"{name}.h5" for name in (OLD, NEW)]
        return paths, [self.open(path) for path in paths]

    def test_mul_changed_by_one_step_in_52_products(self):
        """QAIRT 2.48 to 2.50 round uint8 products otherwise: 52 of 8192 codes, each one step higher in 2.50.40."""
        paths, (old, new) = self.captures("mul.u8.onnx", f"mul={MODELS / 'mul-probe.npz'}")
        steps = new.values("mul", "product").astype(int) - old.values("mul", "product").astype(int)
        self.assertEqual(steps.size, 8192)
        self.assertEqual(int(np.count_nonzero(steps)), 52)
        self.assertEqual(set(steps.ravel()), {0, -1})
        result = compare(*paths)
        self.assertEqual(result["groups"], f"{OLD} | {NEW}")
        pair = result["tensors"][-1]["pairs"][0]
        self.assertEqual((pair["elements"], pair["differing"], pair["max_lsb"]), (8192, 52, 1))
        self.assertEqual(pair["signed_mean_lsb"], -52 / 8192)

    def test_cnn_is_the_same_in_both(self):
        """Convolutions, additions and pooling did not change: every edge of the CNN is bit-equal."""
        paths, (old, new) = self.captures("cnn.w8a8.onnx", some_digits(self.folder / "some.npz", 50))
        self.assertEqual(old.edges, new.edges)
        for edge in old.edges:
            self.assert_bits_equal(old.values("digits", edge), new.values("digits", edge), edge)
        result = compare(*paths, expect=0)
        self.assertEqual((result["verdict"], result["groups"]), ("same", f"{OLD} = {NEW}"))
        said = [info(path)["attributes"]["runtime"] for path in paths]
        self.assertEqual([(s["id"], s["ort_version"], s["provider_version"]) for s in said],
                         [("qairt-2.50.40", "1.29.0", "2.6.0"), ("qairt-2.51.0", "1.31.1", "2.7.0")])


if __name__ == "__main__":
    main()
