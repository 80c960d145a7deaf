# --resume keeps what is complete, makes what is not, and does not take one thing for another.
model=$GOLDEN/models/cnn.w8a8.onnx
capture cnn.w8a8 -p zeros -o out -d exact
cp out/exact.h5 before.h5
run capture "$model" -p zeros -o out -d exact -d emu:round=floor --resume --json > both.txt
grep -v '^{\|^ \|^}\|^emu:' both.txt
sed -n '/^{/,$p' both.txt | python -c '
import json, sys
for row in json.load(sys.stdin)["captures"]:
    print(row["device"], row["status"], row["samples"], row.get("kept", False))'
cmp out/exact.h5 before.h5 && echo unchanged
ls out
echo '# one that had failed is made again'
cp /bin/false npudiff-agent
cp /bin/false npudiff-agent-exact
code_of capture "$model" -p zeros -o failed -d exact --agent ./npudiff-agent
rm npudiff-agent npudiff-agent-exact
code_of capture "$model" -p zeros -o failed -d exact
code_of capture "$model" -p zeros -o failed -d exact --resume
"$NPUDIFF" compare out/exact.h5 failed/exact.h5 | head -n 1
echo '# of something else'
run capture "$model" -p ones -o out -d exact --resume
run capture "$model" -p zeros --tensors outputs -o out -d exact --resume
run capture "$GOLDEN/models/cnn.w8a16.onnx" -p zeros -o out -d exact --resume
run capture "$model" -p zeros -o out -d exact --resume --force
echo '# with other options'
run capture "$model" -p zeros -o out -d exact --resume --prefixes
run capture "$model" -p zeros -o out -d exact --resume --store digest
run capture "$model" -p zeros -o out -d exact --resume --repeats 2
echo '# no capture'
echo nothing > out/exact.h5
run capture "$model" -p zeros -o out -d exact --resume
rm -r out failed both.txt before.h5
