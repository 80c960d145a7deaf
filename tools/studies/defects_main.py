"""Imports of generated folders of qnn-net-run (tools/studies/qnn_folders.py): the good ones to equal bits, and of each with one defect the
exit code, the error's id and the object that is named; that nothing half-written is left. Prints one row for each kind."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import qnn_folders

NPUDIFF = os.environ.get("NPUDIFF", "npudiff")


def stored_name(name):
    return "%2E" if name == "." else name.replace("%", "%25").replace("/", "%2F")


def run(folder, arguments, output):
    done = subprocess.run([NPUDIFF, "import", "qnn-net-run", str(folder.path), "-o", str(output), *arguments],
                          capture_output=True, timeout=120)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "backslashreplace")


def differs(path, expected):
    """What of the capture is not as expected, bit for bit; None: nothing."""
    with h5py.File(path) as file:
        probe, = file["probes"].values()
        outputs = probe["outputs"]
        if set(outputs) != {stored_name(n) for n in expected}:
            return f"tensors {sorted(outputs)}"
        for name, array in expected.items():
            found = outputs[stored_name(name)][()]
            if found.dtype != array.dtype or found.shape != array.shape or found.tobytes() != array.tobytes():
                return f"tensor '{name}': {found.dtype} {found.shape}, expected {array.dtype} {array.shape}"
    return None


def check(name, seed, folder):
    """Why the folder was not named as it must be; None: it was."""
    rng = np.random.default_rng(seed)
    made, named, (expected, _) = qnn_folders.make(folder / "made", rng, name)
    output = folder / "captures" / "out.h5"
    output.parent.mkdir()
    code, text = run(made, made.arguments, output)
    if code != named.code:
        return f"exit code {code}, expected {named.code}: {text}"
    if named.error is not None and f"ND-{named.error}" not in text:
        return f"no ND-{named.error}: {text}"
    missing = [t for t in named.texts if t not in text]
    if missing:
        return f"does not say {missing}: {text}"
    left = sorted(p.name for p in output.parent.iterdir())
    if code == 2:
        return f"left behind: {left}" if left else None
    if left != ["out.h5"]:
        return f"captures: {left}"
    return differs(output, {n: a[:named.n_samples] for n, a in expected.items()})


def check_good(seed, folder):
    """Why a good folder was not read to equal bits; None: it was."""
    rng = np.random.default_rng(seed)
    made = qnn_folders.Folder(folder / "made", rng)
    code, text = run(made, made.arguments, folder / "out.h5")
    return differs(folder / "out.h5", made.expected()) if code == 0 else f"exit code {code}: {text}"


def one(job):
    """(kind, problem); kind None: a good folder."""
    name, seed = job
    folder = pathlib.Path(tempfile.mkdtemp(prefix="defects-"))
    try:
        return name, check(name, seed, folder) if name else check_good(seed, folder)
    except Exception as problem: # a defect of the generator is none of the import's
        return name, f"{type(problem).__name__}: {problem}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def study(n, seed, n_jobs=2, kinds=None):
    """{kind: [problem or None, ...]}; the kinds in turn, and one good folder for every tenth."""
    kinds = kinds or list(qnn_folders.KINDS)
    jobs = [(kinds[i % len(kinds)], [seed, i]) for i in range(n)] + [(None, [seed, n + i]) for i in range((n + 9) // 10)]
    results = collections.defaultdict(list)
    with concurrent.futures.ProcessPoolExecutor(n_jobs) as pool:
        for (name, problem), (_, job_seed) in zip(pool.map(one, jobs, chunksize=8), jobs):
            results[name].append(problem and f"seed {job_seed}: {problem}")
    return results


def main():
    parser = argparse.ArgumentParser(prog="tools/studies/defects", description=__doc__)
    parser.add_argument("--n", type=int, default=10000, help="folders with a defect (10000)")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", action="append", help="only this kind; may be repeated")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    results = study(options.n, options.seed, options.jobs, options.kind)
    n_wrong = 0
    for name in sorted(results, key=lambda k: (k is None, k)):
        wrong = [p for p in results[name] if p]
        n_wrong += len(wrong)
        label = name or "(good folders, to equal bits)"
        print(f"{label:40} {len(results[name]):6} {len(results[name]) - len(wrong):6} {'' if not wrong else 'NOT ALL'}")
        for problem in wrong[:3]:
            print("    " + problem.strip().replace("\n", "\n    "))
    n_defects = sum(len(v) for k, v in results.items() if k)
    n_named = sum(not p for k, v in results.items() if k for p in v)
    print(f"{len(results) - 1} kinds, {n_defects} folders, {n_named} named; {len(results[None])} good folders")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
