# Captures and bundles from the field.
export SOURCE_DATE_EPOCH=1000000000
capture cnn.w8a8 -d emu:half-even -p zeros -p uniform:2 -o a.h5
capture cnn.w8a8 -d emu:double:8 -p zeros -p uniform:2 -o b.h5
capture cnn.w8a8 -d emu:double:8,window@residual/conv=0:50 -p zeros -p uniform:2 -o field.h5
capture mul.u8 -d emu:half-even -p zeros -o mul.h5
"$NPUDIFF" golden add store a.h5 b.h5 >/dev/null
tell() { run "$@" | sed -E 's/\b[0-9a-f]{12}\b/ENTRY/g; s/[0-9]+ bytes/N bytes/'; }
tell bundle a.h5 -o a.json
tell bundle a.h5 -o a.json
tell bundle field.h5 -o field.json
tell bundle mul.h5 -o mul.json --json | grep -v bytes
tell triage a.h5 --against store
tell triage a.json --against store
tell triage field.h5 --against store
tell triage field.json --against store
tell triage mul.json --against store
tell triage a.h5
tell triage nothing.h5 --against store
tell triage a.h5 --against nowhere
echo '{"npudiff_bundle": 9}' > newer.json
tell triage newer.json --against store
head -n 2 a.json > cut.json
tell triage cut.json --against store
tell bundle a.h5
tell bundle a.json -o x.json
tell bundle a.h5 -o missing/x.json
"$NPUDIFF" triage field.h5 --against store --json | python -c '
import json, sys
report = json.load(sys.stdin)
print(report["verdict"], report["equal"], report["nearest"]["label"], report["nearest"]["first"], report["nearest"]["n_equal"])'
ls
