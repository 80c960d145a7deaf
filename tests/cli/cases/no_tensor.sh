# Patterns that name no edge of the model.
model=$GOLDEN/models/cnn.w8a8.onnx
run capture "$model" -d cpu -p zeros -q -o x.h5 -t 'nothing*'
run capture "$model" -d cpu -p zeros -q -o x.h5 -t 'logits,stem/conv'
run capture "$model" -d cpu -p zeros -q -o x.h5 -t ''
run capture "$model" -d cpu -p zeros -q -o x.h5 -t ','
ls
