# Accepting captures, and what changed since. An emulated device knows no SDK: what it says of itself is its options.
export SOURCE_DATE_EPOCH=1000000000
capture cnn.w8a8 -d emu:half-even -p zeros -p uniform:2 -o a.h5
capture cnn.w8a8 -d emu:flip@residual/conv=0.1 -p zeros -p uniform:2 --repeats 1 -o b.h5
capture cnn.w8a8 -d emu:half-even -p ones -o other.h5
capture mul.u8 -d emu:half-even -p zeros -o mul.h5
# The names of entries hold digests of what is here; only this is the same everywhere.
tell() { run "$@" | sed -E 's/\b[0-9a-f]{12}\b/ENTRY/g; s/[0-9a-f]{64}/SHA256/g; s/ +/ /g'; }
tell golden add store a.h5 --note "release 7" --by "A. Tester"
tell golden add store a.h5
tell golden list store
tell golden check store a.h5 b.h5
tell golden check store other.h5 mul.h5
tell golden add store b.h5 --digest-only
tell golden list store
tell golden diff store emu:half emu:flip
tell golden diff store emu: a
tell golden diff store nothing emu:half
tell golden prune store --keep 1 --dry-run
tell golden prune store
touch store/objects/x.h5.tmp-0123456789abcdef store/store.json.tmp-fedcba9876543210
tell golden prune store
tell golden add store missing.h5
"$NPUDIFF" golden list store --json | python -c '
import json, sys
report = json.load(sys.stdin)
print([(e["label"], e["date"], e["store"], e["note"], e["accepted_by"]) for e in report["entries"]], report["problems"])'
"$NPUDIFF" golden check store a.h5 --json | python -c '
import json, sys
print({k: v for k, v in json.load(sys.stdin)["checks"][0].items() if k not in ("entry",)})'
# Two values of which the first 40 characters are alike.
capture cnn.w8a8 -d emu:flip@residual/conv=0.01,flip@residual/relu=0.01,flip@average=0.1 -p zeros -p uniform:2 --repeats 1 -o c.h5
capture cnn.w8a8 -d emu:flip@residual/conv=0.01,flip@residual/relu=0.01,flip@average=0.2 -p zeros -p uniform:2 --repeats 1 -o d.h5
tell golden add long c.h5
tell golden check long d.h5
# One that is inconclusive, and one that differs: the difference stands, in either order.
capture cnn.w8a8 -d emu:flip@logits=0.5 -p zeros -p uniform:2 --tensors logits --repeats 1 -o two.h5
code_of golden check long two.h5
code_of golden check long two.h5 d.h5
code_of golden check long d.h5 two.h5
# Equal, and both wrong on every sample.
python - "$GOLDEN/models/digits-test.npz" <<'PY'
import sys, numpy
digits = numpy.load(sys.argv[1])
numpy.savez("wrong.npz", image=digits["image"][:20], labels=(digits["labels"][:20] + 1) % 10)
PY
capture cnn.w8a8 -d emu:half-even -p wrong=wrong.npz -o wrong.h5
tell golden add broken wrong.h5
tell golden check broken wrong.h5
# Not repeatable: noise is no reason to blame what changed.
capture cnn.w8a8 -d emu:flip@residual/conv=0.1,seed=2 -p zeros -p uniform:2 -o noisy.h5
tell golden check store noisy.h5
