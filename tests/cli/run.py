#!/usr/bin/env python3
"""Runs the command tests and prints TAP.

A case is tests/cli/cases/<name>.sh with what it must print beside it: <name>.out (stdout), <name>.err (stderr) and
<name>.exit (exit code); a missing file means silence, or 0. A case runs in an empty folder, with helpers.sh read in and
$NPUDIFF, $BUILT (the folder of the command), $GOLDEN, $ROOT and $PYTHON set. Everything that a case prints with --json
must be valid against the schema of its kind. Its $TMPDIR and $HOME are its own, too, and must be empty again at the end. The
values of those, and the version, are written as their names in what is compared.

    run.py [--update] [CASE ...]      --update rewrites the expectations, as long as the program starts and
                                      is not replaced (while it is linked it prints nonsense)
"""
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import hermetic # noqa: F401
import json_documents # noqa: E402
CASES = HERE / "cases"
ROOT = HERE.parents[1]
GOLDEN = ROOT / "golden"
DEFAULTS = {".out": "", ".err": "", ".exit": "0\n", ".left": "", ".invalid": ""}
TIME_LIMIT_S = 600
# They need a phone, a runtime of the vendor's, or minutes; the end-to-end tests make and validate them.
OF_OTHER_TESTS = {"golden_upgrades", "prepared", "runtimes_added", "runtimes_removed"}
# Stands in for npudiff: keeps a copy of what is printed with --json, and of certificates. What is written to a device is
# not copied.
KEEPER = """#!/bin/sh
wanted= before=
for argument; do
    case $argument in --json|--option-table) wanted=yes;; esac
    if [ "$before" = --certificate ] && [ ! -e "$argument" ]; then
        code=0
        {npudiff} "$@" || code=$?
        [ ! -e "$argument" ] || cp "$argument" "$(mktemp {folder}/XXXXXXXX)"
        exit $code
    fi
    before=$argument
done
if [ -z "$wanted" ] || [ -c /proc/self/fd/1 ]; then exec {npudiff} "$@"; fi
copy=$(mktemp {folder}/XXXXXXXX)
code=0
{npudiff} "$@" >"$copy" || code=$?
cat "$copy"
exit $code
"""


def clean(text, names, version):
    """What a case printed, without what differs between two machines."""
    text = text.decode("utf-8", "replace")
    for path, name in names.items():
        text = text.replace(path, name)
    text = re.sub(r"/npudiff-\w{6}(?=[/'])", "/npudiff-XXXXXX", text)
    text = re.sub(r"\.tmp-[0-9a-f]+", ".tmp-XXXX", text)
    text = re.sub(r"\d+ bytes, digests only", "N bytes, digests only", text) # with the names of kernel and processor
    # Stages that take over a second on a slow machine (test_progress.py has those).
    text = re.sub(r"^(align|compare|explain|verify): (?!yes$)[a-z ]+(, \d+ [a-z]+)?\n", "", text, flags=re.MULTILINE)
    return re.sub(rf"\b{re.escape(version)}\b", "$VERSION", text)


def runtimes_folder():
    """Where npudiff looks by itself; cases get another home."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return os.environ.get("NPUDIFF_RUNTIMES") or f"{cache}/npudiff/runtimes"


def check_documents(folder):
    """({kind}, problems) of the documents that a case printed."""
    kinds, problems = set(), []
    for path in sorted(folder.iterdir()):
        text = path.read_text(errors="replace")
        if not text:
            continue # killed, or quiet
        kind, found = json_documents.check(text)
        kinds.add(kind)
        problems += found
    return kinds, "".join(f"{problem}\n" for problem in problems)


def run_case(script, npudiff, version):
    since = time.monotonic()
    state = state_of(npudiff) if updates() else ()
    # A path as long on every machine, also that of the golden files: text is wrapped behind it.
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        golden = pathlib.Path(scratch, "golden")
        golden.symlink_to(GOLDEN)
        work, temporary, home, documents = (pathlib.Path(scratch, name) for name in ("work", "tmp", "home", "documents"))
        for folder in (work, temporary, home, documents):
            folder.mkdir()
        keeper = pathlib.Path(scratch, "npudiff")
        keeper.write_text(KEEPER.format(npudiff=shlex.quote(npudiff), folder=shlex.quote(str(documents))))
        keeper.chmod(0o755)
        environment = dict(os.environ, NPUDIFF=str(keeper), NPUDIFF_RUNNERS="/nowhere", BUILT=str(pathlib.Path(npudiff).parent),
                           GOLDEN=str(golden), ROOT=str(ROOT), PYTHON=sys.executable,
                           TMPDIR=str(temporary), HOME=str(home), XDG_CACHE_HOME="", LC_ALL="C.UTF-8",
                           NPUDIFF_RUNTIMES=runtimes_folder(),
                           NPUDIFF_ADB="/nowhere/adb", NPUDIFF_SSH="/nowhere/ssh",  # cases bring their own
                           BASH_ENV=str(HERE / "helpers.sh"))
        try:
            done = subprocess.run(["bash", "-eu", str(script)], cwd=work, env=environment, capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=TIME_LIMIT_S)
            out, err, code = done.stdout, done.stderr, str(done.returncode)
        except subprocess.TimeoutExpired as expired:
            out, err, code = expired.stdout or b"", expired.stderr or b"", f"none after {TIME_LIMIT_S} s"
        names = {str(work): "$PWD", str(temporary): "$TMPDIR", str(home): "$HOME", str(golden): "$GOLDEN", str(GOLDEN): "$GOLDEN",
                 str(ROOT): "$ROOT"}
        left = "".join(f"{path.relative_to(scratch)}\n" for folder in (temporary, home)
                       for path in sorted(folder.rglob("*")) if not path.is_dir())
        kinds, invalid = check_documents(documents)
        is_same = not updates() or (state is not None and state == state_of(npudiff))
        return {".out": clean(out, names, version), ".err": clean(err, names, version), ".exit": f"{code}\n",
                ".left": left, ".invalid": invalid}, kinds, is_same, time.monotonic() - since


def updates():
    return "--update" in sys.argv


def state_of(npudiff):
    """What changes when the program, or the library that it loads, is linked anew; None while it does not start."""
    paths = [pathlib.Path(npudiff), *sorted(pathlib.Path(npudiff).parent.parent.glob("libnpudiff.so*"))]
    try:
        subprocess.run([npudiff, "--version"], capture_output=True, check=True)
        return [(path.name, found.st_ino, found.st_size, found.st_mtime_ns) for path in paths for found in (path.stat(),)]
    except (OSError, subprocess.CalledProcessError):
        return None


def expectation(script, suffix):
    path = script.with_suffix(suffix)
    return path.read_text() if path.exists() else DEFAULTS[suffix]


def update(script, results):
    for suffix, text in results.items():
        path = script.with_suffix(suffix)
        if suffix in (".left", ".invalid"):
            continue # nothing may ever be left, or be invalid
        if text == DEFAULTS[suffix]:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)


def show(title, text):
    print(f"# {title}")
    print("".join(f"#   {line}\n" for line in text.splitlines()), end="")


def main():
    if importlib.util.find_spec("numpy") is None:
        sys.exit(f"{sys.executable} has no numpy, which cases use")
    npudiff = os.environ["NPUDIFF"]
    version = subprocess.run([npudiff, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    scripts = sorted(s for s in CASES.glob("*.sh") if not wanted or s.stem in wanted)
    print(f"1..{len(scripts) + (not wanted)}")
    n_failed = 0
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    outcomes = pool.map(lambda script: run_case(script, npudiff, version), scripts)
    took = []
    seen = set()
    for number, (script, (results, kinds, is_same, wall_s)) in enumerate(zip(scripts, outcomes), 1):
        took.append((wall_s, script.stem))
        seen |= kinds
        if updates():
            if not is_same: # what it printed is not what npudiff prints
                sys.exit(f"Bail out! {script.stem}: {npudiff} does not start, or it was replaced. Nothing more is updated.")
            update(script, results)
        wrong = [suffix for suffix, text in results.items() if text != expectation(script, suffix)]
        n_failed += bool(wrong)
        print(f"{'not ' if wrong else ''}ok {number} - {script.stem}")
        for suffix in wrong:
            what = {".left": "left in $TMPDIR or $HOME", ".invalid": "invalid JSON documents"}.get(suffix, script.stem + suffix)
            show(f"{what}: expected", expectation(script, suffix))
            show(f"{what}: got", results[suffix])
        sys.stdout.flush()
    if not wanted:
        unseen = json_documents.kinds() - seen - OF_OTHER_TESTS
        n_failed += bool(unseen)
        print(f"{'not ' if unseen else ''}ok {len(scripts) + 1} - every kind of JSON document was seen")
        print("".join(f"# not seen: {kind}\n" for kind in sorted(unseen)), end="")
    # For tools/count_tests.py --times. Cases run beside each other, so which used the processors is known of all of them only.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    for wall_s, name in took:
        share = wall_s / sum(wall_s for wall_s, _ in took)
        print(f"# took {wall_s:.2f} s, {share * (usage.ru_utime + usage.ru_stime):.2f} s of processor time: {name}")
    # A name that is no case, or a folder without cases, is no success.
    return n_failed > 0 or not scripts or len(scripts) < len(wanted)


if __name__ == "__main__":
    sys.exit(main())
