# Inputs that are no numbers, labels that are no classes, and one device under two names: found before anything runs
# (/bin/false as the agent would fail).
M="$GOLDEN/models/cnn.w8a8.onnx"
python <<'PY'
import numpy as np
images = np.zeros((3, 1, 1, 8, 8), np.float32)
np.savez("plain.npz", image=images, labels=np.array([0, 9, 3]))
np.savez("above.npz", image=images, labels=np.array([0, 9, 10]))
np.savez("below.npz", image=images, labels=np.array([0, -1, 9]))
for name, value in ("nan", np.nan), ("inf", -np.inf):
    images[2, 0, 0, 1, 3] = value
    np.savez(f"{name}.npz", image=images)
PY
for probe in above below nan inf; do
    run capture "$M" -d cpu -p zeros -p p=$probe.npz -o out --agent /bin/false -q
done
run placement "$M" -d cpu --probe p=nan.npz --agent /bin/false
run prepare "$M" --chipset gen3 -p p=nan.npz -o out --agent /bin/false
run capture "$M" -d cpu -p p=nan.npz -o out -q --allow-nonfinite
run capture "$M" -d exact -p p=plain.npz -o out -q
# No built-in probe is refused, for any of the models.
for model in cnn.float mul.u8 identity.u8 vit.w8a8; do
    for probe in zeros ones ramp uniform:2; do
        run capture "$GOLDEN/models/$model.onnx" -d cpu -p $probe -o out2 --agent /bin/false -q 2>&1 | grep ND-423 || true
    done
done

run capture "$M" -d cpu -d cpu -o out3 --agent /bin/false
run capture "$M" -d htp-sim:gen3 -d emu:floor -d htp-sim:SM8650 -o out3 --agent /bin/false
newest=$("$NPUDIFF" capture "$M" -d cpu -o out4 -p zeros --json 2>/dev/null | sed -n 's/.*"uri": "cpu@\([^"?]*\).*/\1/p')
run capture "$M" -d cpu -d "cpu@$newest" -o out3 --agent /bin/false | sed "s/$newest/NEWEST/g"
run placement "$M" -d htp-sim:gen3 -d htp-sim:SM8650 --agent /bin/false --json
ls
