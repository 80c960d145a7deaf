#!/usr/bin/env python3
"""tools/studies/score, in small: the first faulty unit is found in a few dozen captures of the emulator, nothing in healthy ones, and
the laws of rounding hold. And the study itself: its intervals, its chance, its models."""
import json
import pathlib
import subprocess
import sys

import numpy as np

from support import MODELS, Scratch, capture, main, npudiff

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools/studies"
sys.path.insert(0, str(TOOLS))
import score_faults
import score_run
import score_study
import score_table

RANDOM = {"random-residual.u8": 12, "random-attention.w8a8": 14}  # how many units there compute something


def score(*arguments):
    done = subprocess.run([TOOLS / "score", *map(str, arguments)], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


class Arithmetic(Scratch):
    def test_intervals_are_those_of_clopper_and_pearson(self):
        """Of all and of none there is a closed form; two are in every table; the last is nearly Poisson's interval of 10."""
        for k, n, low, high in ((0, 1000, 0, 1 - 0.025 ** (1 / 1000)), (10, 10, 0.025**0.1, 1), (5, 10, 0.1871, 0.8129),
                                (1, 20, 0.0013, 0.2487), (4390, 4400, 0.99583, 0.99891)):
            found = score_table.clopper_pearson(k, n)
            self.assertLess(abs(found[0] - low) + abs(found[1] - high), 1.1e-4, (k, n, found))

    def test_quotas_give_away_all(self):
        for n in (0, 1, 7, 100, 4801):
            counts = score_study.quotas(n, ["a", "b", "c"], [26, 7, 20])
            self.assertEqual(sum(counts.values()), n)

    def test_distances_name_what_they_see(self):
        """The first difference, the first of more than one step, and where the signal suffers most."""
        a = [np.arange(100, dtype=np.uint8)] * 4
        b = [v.copy() for v in a]
        b[1][7] += 1
        b[2][:50] += 1
        b[3][:50] += 2
        reference, test = score_run.Capture.__new__(score_run.Capture), score_run.Capture.__new__(score_run.Capture)
        reference.edges, reference.codes, reference.zero_points, test.codes = list("wxyz"), a, [0] * 4, b
        self.assertEqual(list(score_run.naive_answers(reference, test).values()), ["x", "z", "x"])
        test.codes = a
        self.assertEqual(list(score_run.naive_answers(reference, test).values()), [None] * 3)


class RandomNetworks(Scratch):
    def test_they_are_sound(self):
        """Every unit is examined, its codes use most of their range, and the CPU provider agrees with the exact units."""
        for model, n_units in RANDOM.items():
            folder = self.folder / model
            capture(f"{model}.onnx", ["exact", "cpu"], [f"random={MODELS / 'random-probe.npz'}"], folder)
            report = json.loads(npudiff("explain", "--quantised", MODELS / f"{model}.onnx", folder / "exact.h5", folder / "cpu.h5",
                                        "--json", expect=0))  # fmt: skip
            units = report["devices"][0]["layers"]
            self.assertTrue(all(u["examined"] for u in units))
            exact = self.open(folder / "exact.h5")
            computing = [u["name"] for u in units if u["op_type"] not in score_faults.MOVES | {"input"}]
            self.assertEqual(len(computing), n_units)
            for name in computing:
                codes = exact.values("random", name)
                self.assertGreater(int(codes.max()) - int(codes.min()), 180, name)

    def test_draws_are_those_of_the_seed(self):
        """And every kind of fault is drawn on every network."""
        for model in RANDOM:
            network = score_run.network_of(model, 5, 2)
            for word in score_faults.FAULTS:
                a, b = (score_faults.injection(score_run.generator(5, model, word), word, network, set()) for _ in "ab")
                self.assertEqual(a, b)
                self.assertRegex(a[0], rf"^emu:round=double:8,{word}[@=]")


class Study(Scratch):
    def test_faulty_units_are_found_and_healthy_devices_left_alone(self):
        path = self.folder / "score.json"
        code, out, err = score("study", "--n", 24, "--healthy", 10, "--models", "cnn.w8a8," + ",".join(RANDOM), "--json", path,
                               "-q")  # fmt: skip
        self.assertEqual(code, 0, out + err)
        outcomes = json.loads(path.read_text())
        self.assertEqual((len(outcomes["injections"]), len(outcomes["healthy"])), (24, 10))
        self.assertEqual(len({o["word"] for o in outcomes["injections"]}), len(score_faults.FAULTS))
        self.assertTrue(all(o["is_found"] for o in outcomes["injections"]))
        # The command that it prints for a miss shows the same fault again.
        o = outcomes["injections"][-1]
        _, out, _ = score("one", o["model"], o["inputs"], o["device"], "--repeats", o["repeats"])
        unit, word, n = o["faults"][0]
        self.assertIn(f"truth: {unit}: {word}, {n} codes\n", out)

    def test_faulty_units_are_found_over_a_program_of_units(self):
        code, out, err = score("study", "--background", "htp-v73", "--n", 16, "--healthy", 4, "--models", "cnn.w8a8", "-q")
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out, r"^1[0-6] injections over round=htp-v73 and 4 healthy")

    def test_laws_of_rounding(self):
        code, out, err = score("identities")
        self.assertEqual(code, 0, out + err)
        self.assertIn("within 1%: yes", out)


if __name__ == "__main__":
    main()
