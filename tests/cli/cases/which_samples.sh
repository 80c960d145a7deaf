# Which samples differ, in the default text: those whose class changes; else how many, and where the difference is largest.
python -c "import numpy, sys; d = numpy.load(sys.argv[1]); numpy.savez('few.npz', **{k: d[k][:40] for k in d.files})" "$GOLDEN/models/digits-test.npz"
capture cnn.w8a8 -d exact -d emu:htp-v69 -d emu:htp-v73,stale@logits -p digits=few.npz -o captures
for device in htp-v69 htp-v73-stale-logits; do
    "$NPUDIFF" compare captures/exact.h5 captures/emu-$device.h5 --json >$device.json || true
    run compare captures/exact.h5 captures/emu-$device.h5 | grep -A1 -E '^(\$|No predicted|The predicted|On emu)'
    # The same from the JSON.
    python - $device.json <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
row, = report["accuracy"]
print([entry["sample"] for entry in row["changed_samples"]][:5], row["n_changed_samples"])
END
done
