# Options that are known to change bits are told beside the numbers, where two devices of one kind do not share them.
capture cnn.w8a8 -d cpu -p zeros -o a.h5
capture cnn.w8a8 -d 'cpu?optimisation=all' -p zeros -o b.h5
"$NPUDIFF" compare a.h5 b.h5 2>&1 | grep -A1 "configured differently"
"$NPUDIFF" compare a.h5 a.h5 2>&1 | grep -c "configured differently"
"$NPUDIFF" compare a.h5 b.h5 --json | python -c 'import json, sys; print([(d["configured_as"], d["configuration"]) for d in json.load(sys.stdin)["devices"]])'
