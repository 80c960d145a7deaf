# What cannot be reduced, and what there is nothing to reduce of.
cnn=$GOLDEN/models/cnn.w8a8.onnx
run reduce "$cnn"
run reduce "$cnn" -d tpu
run reduce missing.onnx -d cpu
run reduce "$cnn" -d cpu --sessions 0
run reduce "$cnn" -d cpu --sessions 4
run reduce "$cnn" -d cpu --samples 65
run reduce "$cnn" -d cpu --differs many
run reduce "$cnn" -d cpu --differs 100%
run reduce "$cnn" -d cpu --differs -1lsb
run reduce "$cnn" -d cpu --tensor logits
run reduce "$cnn" -d cpu --against exact
run reduce "$cnn" -d cpu --differs 1lsb --tensor nothing
run reduce "$GOLDEN/oracle/model/dynamic.onnx" -d cpu
mkdir full && echo kept > full/file
run reduce "$cnn" -d cpu -o full
run reduce "$cnn" -d cpu -o full --force
cat full/file
echo file > here
run reduce "$cnn" -d cpu -o here/below
run reduce "$cnn" -d cpu -q -o out
ls
