# Patterns that name no edge of the model.
model=$GOLDEN/models/cnn.w8a8.onnx
run capture "$model" -d cpu -p zeros -q -o x.h5 -e 'nothing*'
run capture "$model" -d cpu -p zeros -q -o x.h5 -e 'logits,stem/conv'
run capture "$model" -d cpu -p zeros -q -o x.h5 -e ''
run capture "$model" -d cpu -p zeros -q -o x.h5 -e ','
ls
