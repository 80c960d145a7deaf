# A file or folder that is in the way is found before anything runs, and the message says what helps. /bin/false as the
# agent stands for "nothing runs": it would fail at once.
M="$GOLDEN/models"
capture mul.u8 -d cpu -p zeros -o kept.h5
mkdir out folder && cp kept.h5 out/cpu.h5 && echo mine > mine && cp mine folder/mine
run capture "$M/mul.u8.onnx" -d emu:floor -d cpu -o out --agent /bin/false
run capture "$M/mul.u8.onnx" -d cpu -p missing=none.npz -o kept.h5
ls out
run import numpy none --model "$M/mul.u8.onnx" -o mine
run export aihub missing.h5 -o mine
run golden bundle missing.h5 -o mine
run encodings apply missing.onnx missing.encodings -o mine
run fingerprint -d cpu -o mine --agent /bin/false
run fingerprint -d cpu -o none/mine --agent /bin/false
run fingerprint -d cpu -o folder --force --agent /bin/false
run prepare missing.onnx --chipset gen3 -o folder
run prepare "$M/mul.u8.onnx" --chipset gen3 -o folder --force --agent /bin/false
run reduce missing.onnx -d cpu -o folder
run reduce "$M/mul.u8.onnx" -d cpu -o folder --force --agent /bin/false -q
cmp mine folder/mine
echo mine | cmp - mine

# --force replaces.
E="$GOLDEN/encodings/cnn.per-tensor.2.0.0.encodings"
run encodings apply "$M/cnn.float.onnx" "$E" -o mine --force
run encodings apply "$M/cnn.float.onnx" "$E" -o mine
run golden bundle kept.h5 -o bundle.json
run golden bundle kept.h5 -o bundle.json
run golden bundle kept.h5 -o bundle.json --force
ls
