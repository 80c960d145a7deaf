#!/usr/bin/env python3
"""Options of the QNN provider in the simulator: those that change bits, in which tensor first; one that the provider refuses."""
import json

import numpy as np

from support import MODELS, Scratch, main, npudiff

GEN3 = "htp-sim:gen3"


class Sweep(Scratch):
    def sweep(self, *arguments, expect):
        return json.loads(npudiff("sweep", MODELS / "cnn.w8a8.onnx", "-d", GEN3, "--json", "-q", *arguments, expect=expect))

    def test_where_the_input_is_quantised_changes_bits_and_vtcm_does_not(self):
        digits = np.load(MODELS / "digits-test.npz")
        np.savez(self.folder / "few.npz", **{k: digits[k][:20] for k in digits.files})
        probe = f"digits={self.folder / 'few.npz'}"
        document = self.sweep("--set", "vtcm_mb=2", "--set", "offload_graph_io_quantization=0", "-p", probe, "--float",
                              MODELS / "cnn.float.onnx", expect=1)
        as_it_is, vtcm, offload = document["settings"]
        self.assertEqual([s["result"] for s in document["settings"]], ["same", "same", "differs"])
        self.assertEqual((document["changing"], document["failed"]), (1, 0))
        self.assertIn("simulator", document["environment"])
        self.assertGreater(as_it_is["sqnr_db"], 20)
        self.assertEqual(vtcm["sqnr_db"], as_it_is["sqnr_db"])
        self.assertGreater(as_it_is["median_us"], 0)
        self.assertEqual((as_it_is["labelled"], vtcm["right"]), (20, as_it_is["right"]))
        # The same difference by commands that sweep does not use.
        for name, uri in (("ref", GEN3), ("test", offload["uri"])):
            npudiff("capture", MODELS / "cnn.w8a8.onnx", "-d", uri, "-p", probe, "-o", self.folder / f"{name}.h5", "-q")
        compared = json.loads(npudiff("compare", self.folder / "ref.h5", self.folder / "test.h5", "--json", expect=1))
        differing = [e["name"] for e in compared["tensors"] if e["verdict"] == "differs"]
        self.assertEqual((offload["tensors_different"], offload["first_difference"]), (len(differing), differing[0]))

    def test_a_value_that_the_provider_refuses_is_a_failed_setting(self):
        document = self.sweep("--set", "vtcm_mb=2,100000", "-p", "zeros", expect=5)
        as_it_is, good, bad = document["settings"]
        self.assertEqual((document["result"], as_it_is["result"], good["result"], bad["result"]), ("failed", "same", "same", "failed"))
        self.assertTrue(bad["failure"])


if __name__ == "__main__":
    main()
