#!/usr/bin/env python3
"""Models as other tools write them: nodes in any order, dimensions without names, operators that are not evaluated."""
import json
import pathlib
import random
import sys

import numpy as np

from support import MODELS, Capture, Scratch, bits_equal, capture, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import mobile_blocks  # noqa: E402
import onnx_graph  # noqa: E402

SEED = 20261123


def shuffled(data, seed):
    """The bytes of a model with the nodes of its graph in another order."""
    fields = onnx_graph.fields_of_graph(data)
    nodes = [field for field in fields if field[0] == 1]
    random.Random(seed).shuffle(nodes)
    return onnx_graph.with_graph(data, nodes + [field for field in fields if field[0] != 1])


class NodesInAnyOrder(Scratch):
    def explained(self, model, name, devices):
        capture(model, devices, ["uniform:2"], self.folder / name)
        files = sorted((self.folder / name).glob("*.h5"))
        done = npudiff("explain", "--quantised", MODELS / model, *files, "--json", expect=None)
        self.assertIn(done.returncode, (0, 1, 4), done.stderr)
        return files, json.loads(done.stdout)

    def test_it_changes_nothing(self):
        print(f"# seed {SEED}")
        for model, devices in (("cnn.w8a8.onnx", ["cpu", "exact", "htp-sim:gen3"]), ("vit.w8a8.onnx", ["cpu", "exact"])):
            other = self.folder / "shuffled.onnx"
            other.write_bytes(shuffled((MODELS / model).read_bytes(), SEED))
            ordered, first = self.explained(model, "ordered" + model, devices)
            mixed, second = self.explained(other, "mixed" + model, devices)
            for a, b in zip(ordered, mixed):
                with Capture(a) as x, Capture(b) as y:
                    self.assertEqual(sorted(x.edges), sorted(y.edges))
                    for edge in x.edges:
                        self.assertTrue(bits_equal(x.values("uniform", edge), y.values("uniform", edge)), (a.name, edge))
            for a, b in zip(first["devices"], second["devices"]):
                self.assertEqual((a["verdict"], a["mean_squared_error"]), (b["verdict"], b["mean_squared_error"]))
                self.assertEqual({u["name"]: u["state"] for u in a["layers"]}, {u["name"]: u["state"] for u in b["layers"]})


class GreatestEffect(Scratch):
    def test_the_layer_that_matters_most_is_named_first(self):
        """Another layer than the first that differs makes most of what is seen at the outputs."""
        capture("cnn.w8a16.onnx", ["htp-sim:gen1"], ["uniform:4"], self.folder)
        arguments = ["explain", "--quantised", MODELS / "cnn.w8a16.onnx", *self.folder.glob("*.h5")]
        device = json.loads(npudiff(*arguments, "--json", expect=None).stdout)["devices"][0]
        layers = [u for u in device["layers"] if u["effect"]]
        greatest = max(layers, key=lambda u: u["effect"])
        self.assertAlmostEqual(sum(u["effect_share"] for u in layers), 1)
        self.assertNotEqual([greatest["name"]], device["sources"][:1])
        text = " ".join(npudiff(*arguments, "--width", "200", expect=None).stdout.split())
        said = f"greatest effect: '{greatest['name']}' ({greatest['op_type']}) makes {100 * greatest['effect_share']:.3g}%"
        self.assertIn(said, text)
        self.assertLess(text.index(said), text.index(f"from '{device['sources'][0]}'"))


class MobileBlocks(Scratch):
    """Healthy NPUs on blocks whose arithmetic may not be known: a layer may be unexplained, it is never faulty, and never said to
    have run elsewhere."""

    def check(self, name):
        (self.folder / "block.onnx").write_bytes(mobile_blocks.BLOCKS[name](SEED).bytes())
        capture(self.folder / "block.onnx", ["htp-sim:gen1", "htp-sim:gen3"], ["uniform:8"], self.folder / "out")
        for path in sorted((self.folder / "out").glob("*.h5")):
            for more in ([], ["--hide-placement"]): # from the values alone, too
                done = npudiff("explain", "--quantised", self.folder / "block.onnx", path, "--json", *more, expect=None)
                (device,) = json.loads(done.stdout)["devices"]
                self.assertIn(device["verdict"], ("healthy", "unexplained"), (name, path.name))
                self.assertEqual(device["faulty"], [])
                self.assertNotEqual(device["execution"]["verdict"], "not-npu", device["execution"]["evidence"])
                elsewhere = [u["name"] for u in device["layers"] if u["execution"] and u["execution"]["verdict"] == "not-npu"
                             and u["state"] == "unexplained"]
                self.assertEqual(elsewhere, [])


class NoNumbers(Scratch):
    def test_a_layer_without_any_number_is_named(self):
        """As what a quantiser makes of a mask constant of minus infinity: all exact values are no numbers, or nearly all."""
        block = mobile_blocks.Block(SEED)
        block.add("Sqrt", [block.last], np.sqrt(np.abs(block.values["image"])))
        (self.folder / "root.onnx").write_bytes(block.bytes())
        image = np.full((1, *block.values["image"].shape), -1, np.float32)
        image[0, 0, 0, 0, 0] = 1
        np.savez(self.folder / "negative.npz", image=image)
        capture(self.folder / "root.onnx", ["cpu"], [f"negative={self.folder / 'negative.npz'}"], self.folder / "cpu.h5")
        done = npudiff("explain", "--quantised", self.folder / "root.onnx", self.folder / "cpu.h5", "--json", expect=None)
        (device,) = json.loads(done.stdout)["devices"]
        (finding,) = [f for f in device["findings"] if f["kind"] == "not-a-number"]
        self.assertTrue(finding["text"].startswith("99.9 % of its exact values are not numbers"), finding["text"])


class DepthwiseWithStride(Scratch):
    def test_nearly_exact_sums_do_not_show_another_unit(self):
        """Drawn by tools/studies/mobile_blocks (seed 17). The HTP sums the first layer almost exactly, as a CPU would."""
        model = MODELS / "depthwise-stride-2.w8a8.onnx"
        np.savez(self.folder / "x.npz", image=np.random.default_rng(SEED).normal(0, 1, (16, 8, 14, 14)).clip(-3, 3).astype(np.float32))
        capture(model, ["htp-sim:gen1", "htp-sim:gen3"], [f"x={self.folder / 'x.npz'}"], self.folder / "out")
        for path in sorted((self.folder / "out").glob("*.h5")):
            done = npudiff("explain", "--quantised", model, path, "--json", "--hide-placement", "--effect-samples", 0)
            (device,) = json.loads(done)["devices"]
            layer = device["layers"][[u["name"] for u in device["layers"]].index("conv0")]
            self.assertEqual((device["verdict"], layer["state"], layer["unexplained"]), ("healthy", "follows", 0))
            self.assertNotEqual(layer["execution"]["verdict"], "not-npu")
            self.assertEqual(device["execution"]["verdict"], "npu")


class DividedByANumber(Scratch):
    def test_codes_of_exact_rounding_do_not_show_another_unit(self):
        """Behind a Conv a Div by a number is rescaled in the way that differs from exact rounding nowhere, and elsewhere in one that
        does: seed 42004 of tools/studies/strangers."""
        block = mobile_blocks.Block(SEED).conv(8, 3)
        x = block.values[block.last.removesuffix(".dq")]
        block.add("Div", [block.last, block.scalar(6.0)], np.clip(x / 6, x.min() / 13, x.max() / 13))
        block.conv(8, 1)
        (self.folder / "divided.onnx").write_bytes(block.bytes())
        capture(self.folder / "divided.onnx", ["htp-sim:gen1", "htp-sim:gen3"], ["uniform:32"], self.folder / "out")
        for path in sorted((self.folder / "out").glob("*.h5")):
            done = npudiff("explain", "--quantised", self.folder / "divided.onnx", path, "--json", "--hide-placement", "--effect-samples", 0)
            (device,) = json.loads(done)["devices"]
            (layer,) = [u for u in device["layers"] if u["op_type"] == "Div"]
            self.assertEqual((device["verdict"], layer["state"]), ("healthy", "follows"))
            self.assertEqual(layer["unexplained"], 0)
            self.assertNotEqual(layer["execution"]["verdict"], "not-npu")
            self.assertEqual(device["execution"]["verdict"], "npu")


for block in mobile_blocks.BLOCKS:
    setattr(MobileBlocks, "test_" + block.replace("-", "_"), lambda self, name=block: self.check(name))


if __name__ == "__main__":
    main()
