"""npudiff latency on captures of real runtimes: times are measured, and deterministic devices have no slow bits."""
import json
import pathlib
import tempfile

from support import capture, main, npudiff, unittest

DEVICES = ["cpu", "htp-sim:sm8650"]


class Latency(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name) / "captures"
        capture("cnn.w8a8.onnx", DEVICES, ["zeros"], cls.path, "--repeats", 230)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def series(self, *arguments):
        done = npudiff("latency", *arguments, "--json", expect=None)
        self.assertIn(done.returncode, (0, 1, 4), done.stderr)
        return done.returncode, json.loads(done.stdout)["series"]

    def test_repeats_are_timed_and_judged(self):
        files = sorted(self.path.glob("*.h5"))
        self.assertEqual(len(files), len(DEVICES))
        code, series = self.series(*files)
        for one in series:
            self.assertEqual(one["runs"], 230)
            self.assertEqual(one["not_recorded"], 0)
            self.assertEqual(one["timed_runs"] + one["warm_up_runs"], 230)
            self.assertGreater(one["timed"]["median_us"], 1)
            self.assertLessEqual(one["timed"]["p50_us"], one["timed"]["p90_us"])
            self.assertLessEqual(one["timed"]["p90_us"], one["timed"]["p99_us"])
            self.assertNotEqual(one["verdict"], "too few")
        self.assertEqual(code, 1 if any(one["is_suspect"] for one in series) else 0)

    def test_deterministic_devices_give_slow_runs_no_other_bits(self):
        for path in self.path.glob("*.h5"):
            (one,) = self.series(path)[1]
            self.assertIn(one["join"]["state"], ("known", "no slow runs"))
            self.assertEqual(one["join"]["slow_other"] + one["join"]["fast_other"], 0)
            self.assertEqual(one["join"]["tensors_tied"], 0)

    def test_capture_agrees_with_the_same_times_as_a_list(self):
        import h5py
        for path in self.path.glob("*.h5"):
            with h5py.File(path) as file:
                times = file["probes/zeros/latency_us"][...].ravel()
            (self.path / "list.txt").write_text("".join(f"{t!r}\n" for t in times.tolist()))
            of_capture, of_list = self.series(path)[1][0], self.series(self.path / "list.txt")[1][0]
            for key in ("verdict", "timed", "evidence", "modes", "changes"):
                self.assertEqual(of_capture[key], of_list[key])


if __name__ == "__main__":
    main()
