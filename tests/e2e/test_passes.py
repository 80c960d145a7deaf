#!/usr/bin/env python3
"""Models that run on the NPU as a whole, and whose tensors one session cannot show: every tensor comes from one of several, or it is
left out and named."""
import json
import os
import pathlib
import sys

import numpy as np

from support import NPUDIFF, Scratch, capture, info, main, npudiff

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import attention_blocks  # noqa: E402

SEED = 20261123
STANDIN = pathlib.Path(__file__).with_name("agent_standin.py")
AGENT = pathlib.Path(NPUDIFF).resolve().parents[1] / "devices" / "agent" / "npudiff-agent"


class Blocks(Scratch):
    """A model of blocks in a file, captured in its folder."""

    def write(self, block):
        print(f"# seed {SEED}")
        self.model = self.folder / "model.onnx"
        self.model.write_bytes(block.bytes())
        self.names = {row["tensor"] for row in json.loads(npudiff("info", "--list", self.model, "--json"))["tensors"]}

    def capture(self, name, device, *arguments, **options):
        """The capture, and what the command says of it."""
        path = self.folder / name
        said = npudiff("capture", self.model, "-d", device, "-p", "uniform:3", "-o", path, "--json", *arguments, **options)
        return self.open(path), json.loads(said)["captures"][0]

    def check_whole(self, opened, n_least):
        """Every tensor, all of it from the NPU, from several sessions."""
        runtime = opened.file["runtime"].attrs
        self.assertEqual((opened.status, runtime["edges_in"]), ("complete", b"passes"))
        self.assertGreaterEqual(int(runtime["passes"]), n_least)
        self.assertNotIn("left_out", runtime)
        self.assertNotIn("moved_by_recording", runtime)
        recorded = {name for name in opened.edges if name in self.names}
        self.assertEqual(self.names - recorded, set())
        for name in recorded - {"image"}:
            self.assertEqual(opened.output("uniform", name).attrs["provider"], b"QNNExecutionProvider", name)

    def check_same(self, opened, other):
        for name in set(opened.edges) & set(other.edges):
            a, b = opened.values("uniform", name), other.values("uniform", name)
            if a.dtype == b.dtype: # an untouched run gives floats
                self.assert_bits_equal(a, b, name)
            else:
                attrs = opened.output("uniform", name).attrs
                reals = (a.astype(np.int64) - attrs["zero_point"][0]).astype(np.float32) * attrs["scale"][0]
                self.assert_bits_equal(reals.astype(np.float32), b, name)


class Passes(Blocks):
    def test_like_tensors_of_ten_blocks_take_few_sessions(self):
        """In each block the keys do not go together with the MatMul that reads them; only one block's nodes fall at a time."""
        self.write(attention_blocks.Attention(SEED, 10))
        for device in ("htp-sim:gen1", "htp-sim:gen3"):
            opened, row = self.capture(device[-4:] + ".h5", device)
            self.check_whole(opened, 2)
            self.assertEqual(row["left_out"], [])
            self.assertEqual(row["sessions"], 1 + int(opened.file["runtime"].attrs["sessions_tried"]) + int(opened.file["runtime"].attrs["passes"]))
            self.assertLessEqual(row["sessions"], 20) # of 102 tensors
            self.check_same(opened, self.capture("none.h5", device, "--tensors", "none", "--force")[0])

    def test_each_tensor_is_that_of_a_session_of_its_own(self):
        self.write(attention_blocks.Attention(SEED, 1))
        opened, _ = self.capture("passes.h5", "htp-sim:gen3")
        self.check_whole(opened, 2)
        alone, _ = self.capture("prefixes.h5", "htp-sim:gen3", "--prefixes")
        self.assertEqual(opened.edges, alone.edges)
        self.check_same(opened, alone)

    def test_leave_to_fall_back_changes_nothing(self):
        self.write(attention_blocks.Attention(SEED, 2))
        opened, _ = self.capture("passes.h5", "htp-sim:gen3", "--allow-fallback")
        self.check_whole(opened, 2)
        self.check_same(opened, self.capture("none.h5", "htp-sim:gen3", "--tensors", "none")[0])

    def test_image_that_is_made_ready_in_the_graph(self):
        """What falls there has no name of the model."""
        self.write(attention_blocks.Photo(SEED))
        for arguments in ((), ("--allow-fallback",)):
            opened, _ = self.capture("passes.h5", "htp-sim:gen3", "--force", *arguments)
            self.check_whole(opened, 2)
            self.check_same(opened, self.capture("none.h5", "htp-sim:gen3", "--tensors", "none", "--force")[0])


class LeftOut(Blocks):
    """An agent that stands in for a provider that cannot show one of the tensors at all."""

    def environment(self, tensor, **more):
        environment = dict(os.environ, STANDIN_AGENT=str(AGENT), STANDIN_TENSOR=tensor, NPUDIFF_AGENT=str(STANDIN), **more)
        environment["PYTHONPATH"] = str(STANDIN.parent)
        return environment

    def whole(self):
        """The capture of one block by an agent that shows everything, made once."""
        path = self.shared / "whole.h5"
        return self.open(path) if path.exists() else self.capture(path, "htp-sim:gen3")[0]

    def check_left_out(self, tensor, words, *arguments, **more):
        environment = self.environment(f"{tensor}.q {tensor}.dq", **more)
        path = self.folder / "x.h5"
        done = npudiff("capture", self.model, "-d", "htp-sim:gen3", "-p", "uniform:3", "-o", path, "--json", *arguments,
                       env=environment, expect=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        (row,) = json.loads(done.stdout)["captures"]
        self.assertEqual((row["status"], [e["tensor"] for e in row["left_out"]]), ("complete", [tensor]))
        self.assertIn(words, row["left_out"][0]["reason"])
        self.assertIn(f"1 tensor is left out, first '{tensor}': ", done.stderr)
        opened = self.open(path)
        self.assertNotIn(tensor, opened.edges)
        text = info(path)["attributes"]["runtime"]["left_out"]
        self.assertEqual(text.split("\t")[0], tensor)
        npudiff("verify", path)
        return opened

    def test_tensor_whose_quantised_values_kill_every_session(self):
        """Its floats do not: they are as good."""
        self.write(attention_blocks.Attention(SEED, 1))
        opened, row = self.capture("floats.h5", "htp-sim:gen3", env=self.environment("b0/weights.q"))
        self.assertEqual((row["left_out"], opened.file["runtime"].attrs["from_floats"]), ([], b"b0/weights"))
        self.check_same(opened, self.whole())
        npudiff("verify", self.folder / "floats.h5")

    def test_tensor_that_kills_every_session(self):
        """All others are there, and the same as ever."""
        self.write(attention_blocks.Attention(SEED, 1))
        opened = self.check_left_out("b0/weights", "killed")
        whole = self.whole()
        self.assertEqual(set(whole.edges) - set(opened.edges), {"b0/weights"})
        self.check_same(opened, whole)

    def test_session_that_is_stuck_is_split(self):
        self.write(attention_blocks.Attention(SEED, 1))
        opened = self.check_left_out("b0/weights", "no progress for 15 s", "--tensors", "b0/weights,b0/sum.dq", "--stall-limit", "15",
                                     STANDIN_STUCK="1")
        self.assertEqual(opened.edges, ["b0/sum.dq"])

    def test_tensor_that_changes_the_outputs_is_shown_apart_from_them(self):
        """Nodes stay where they are, but the outputs are others where it is visible: seen in the run, and split further."""
        self.write(attention_blocks.Attention(SEED, 1))
        environment = self.environment("b0/weights.q", STANDIN_CHANGES="b0/sum.z")
        opened, row = self.capture("passes.h5", "htp-sim:gen3", env=environment)
        self.check_whole(opened, 2)
        self.assertEqual(row["left_out"], [])
        self.check_same(opened, self.capture("none.h5", "htp-sim:gen3", "--tensors", "none")[0])
        self.check_same(opened, self.whole())

    def test_model_that_never_runs_is_a_failure(self):
        """Nothing is searched where the outputs alone do not come either."""
        self.write(attention_blocks.Attention(SEED, 1))
        done = capture(self.model, ["htp-sim:gen3"], ["uniform:3"], self.folder / "x.h5", env=self.environment("b0/sum.q b0/sum.dq"), expect=None)
        self.assertEqual(done.returncode, 5, done.stderr)
        opened = self.open(self.folder / "x.h5")
        self.assertEqual((opened.status, opened.failure()["stage"]), ("failed", "session"))


if __name__ == "__main__":
    main()
