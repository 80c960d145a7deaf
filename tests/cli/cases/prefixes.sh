# Every edge in a session of its own; a folder that nothing came into goes again, and only that.
model=$GOLDEN/models/cnn.w8a8.onnx
run capture "$model" -d cpu -p zeros -o x --prefixes --tensors none
run capture "$model" -d exact -p zeros -q -o x/y --prefixes
run capture "$model" -d exact -p zeros -q -o all.h5
run compare all.h5 x/y/exact.h5 --bitwise -q
run info -v x/y/exact.h5 | grep -E 'edges_in|passes'
mkdir -p old
for folder in new new/ new/er/est new//er/ old old/er/est x x/y; do
    run capture "$model" -d emu:zero@nothing -p zeros -q -o "$folder"
done
run capture "$model" -d emu:zero@nothing -d exact -p zeros -q -o two
find . -type d -o -type f | sort
