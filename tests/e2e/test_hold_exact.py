#!/usr/bin/env python3
"""The evaluation of operators against ONNX Runtime's CPU provider: a part of tools/studies/hold_exact, and what was found by it."""
import json

import numpy as np

from support import NPUDIFF, Scratch, main, npudiff

import hold_operators as ho
import onnx_write as ow
import operator_cases as oc

SEED = 20261123


def power_model(scale):
    """x of codes about 0, to the power of the constant 2, which is code 255."""
    nodes = [ow.node("DequantizeLinear", ["q", "s", "z"], ["x"]), ow.node("DequantizeLinear", ["two", "ts", "tz"], ["e"]),
             ow.node("Pow", ["x", "e"], ["p"]), ow.node("QuantizeLinear", ["p", "ps", "tz"], ["y"])]
    constants = {"s": np.float32(2 / 255), "z": np.uint8(128), "two": np.uint8(255), "ts": np.float32(scale), "tz": np.uint8(0),
                 "ps": np.float32(1 / 255)}
    return ow.model(nodes, [ow.value_info("q", ow.U8, (256,))], [ow.value_info("y", ow.U8, (256,))], constants)


class HeldAgainstTheCpu(Scratch):
    def test_every_operator_has_a_case(self):
        """A new operator must be added to tools/oracles/exact_ops_cases.py; then it is held here, too."""
        self.assertEqual([str(o) for o in oc.with_cases().values() if not o.cases], [])

    def test_one_case_of_every_operator_in_one_type_of_each_kind(self):
        print(f"# seed {SEED}")
        counts = ho.hold(ho.Bench(NPUDIFF, self.folder), SEED, (np.uint8, np.float32), most=1, size=1000)
        wrong = [text for count in counts.values() for text in count.examples]
        self.assertEqual(wrong, [])
        self.assertGreater(sum(c.values for c in counts.values()), 50000)
        for operator in oc.with_cases().values():
            refused = [counts[str(operator), t].refused for t in ("uint8", "float32")]
            self.assertLess(sum(map(bool, refused)), 2, refused)

    def capture_power(self, scale):
        (self.folder / "m.onnx").write_bytes(power_model(scale))
        np.savez(self.folder / "in.npz", q=np.arange(256, dtype=np.uint8))
        npudiff("capture", self.folder / "m.onnx", "-d", "cpu", "-d", "exact", "-p", f"all={self.folder / 'in.npz'}", "-o",
                self.folder / "out", "-q", "-f")
        explained = npudiff("explain", "--quantised", self.folder / "m.onnx", self.folder / "out/cpu.h5", "--json", expect=None)
        compared = npudiff("compare", self.folder / "out/cpu.h5", self.folder / "out/exact.h5", "--json", expect=None)
        return explained, json.loads(explained.stdout)["devices"][0], json.loads(compared.stdout)

    def test_the_square_of_a_negative_number(self):
        """255 times the float32 next to 2/255 is the float32 2, and not the double 2."""
        done, device, compared = self.capture_power(2 / 255)
        (layer,) = [u for u in device["layers"] if u["op_type"] == "Pow"]
        self.assertEqual((compared["exit_code"], done.returncode), (0, 0), done.stderr)
        self.assertEqual((layer["not_a_number"], layer["introduced_mismatch"]), (0, 0))
        self.assertEqual(device["findings"], [])

    def test_a_value_that_is_no_number_is_reported(self):
        """To the power of 1.9 negative numbers have no value: that is said, and the CPU is not accused."""
        done, device, compared = self.capture_power(1.9 / 255)
        (layer,) = [u for u in device["layers"] if u["op_type"] == "Pow"]
        self.assertEqual(layer["not_a_number"], 128)
        self.assertEqual([f["kind"] for f in device["findings"]], ["not-a-number"])
        self.assertEqual(compared["exit_code"], 0)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    main()
