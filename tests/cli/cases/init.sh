# A first campaign: qualify takes it as it is, wherever it is.
cp "$GOLDEN/models/cnn.w8a8.onnx" model.onnx
run init model.onnx --no-phones
cat campaign.yaml
run init model.onnx --no-phones
run init model.onnx -f -d exact -d emu:htp-v73 -p uniform:2 -q
code_of qualify campaign.yaml -o results -q
mkdir -p "else where"
cp "$GOLDEN/models/cnn.float.onnx" "it's.onnx"
run init model.onnx --float "it's.onnx" -d exact -d emu:htp-v73 -p digits="$GOLDEN/models/digits-test.npz" -p uniform:2 -o "else where/c.yaml" --json
grep -v '^ *#' "else where/c.yaml"
# A campaign for every device there is can be followed: the mistake is one that only capturing finds.
run init model.onnx --no-phones -o all.yaml -q
NPUDIFF_RUNTIMES=$PWD/none run qualify all.yaml -o none
# What qualify would refuse is refused now.
run init model.onnx -d cpuu -o x.yaml
run init "$GOLDEN/oracle/model/dynamic.onnx" -o x.yaml
run init "$GOLDEN/oracle/model/dynamic.onnx" --dim batch=2 --dim a:1=3 --dim width=4 -d exact -o y.yaml
run init model.onnx -d exact -p digits=missing.npz -o x.yaml
run init missing.onnx -o x.yaml
run init model.onnx --float missing.onnx -o x.yaml
ls
# What few samples can prove, what fewer cannot, and a model without quantised values.
for n in 700 100 10; do
    python -c 'import sys, numpy as np
d = np.load(sys.argv[1]); np.savez("few.npz", **{k: v[:int(sys.argv[2])] for k, v in d.items()})' "$GOLDEN/models/digits-test.npz" $n
    "$NPUDIFF" init model.onnx --float "it's.onnx" -d exact -d emu:htp-v73 -p few=few.npz -f -q
    echo "$n samples"
    sed -n '/Accuracy/,$p' campaign.yaml
    rm -rf results
    code_of qualify campaign.yaml -o results -q
done
run init "it's.onnx" -d float64 -d cpu -f -q
grep -A1 'probes:\|^reference' campaign.yaml
rm -rf results
code_of qualify campaign.yaml -o results -q
