# The words of version 0.1 still work: --edges and -e, --edge, --units, --harm-samples, --replace, --runs, --keep.
cnn=$GOLDEN/models/cnn.w8a8.onnx
capture cnn.w8a8 -d exact -p zeros --edges outputs -o a.h5
capture cnn.w8a8 -d exact -p zeros -e outputs -o b.h5
capture cnn.w8a8 -d exact -p zeros --tensors outputs -o c.h5
for file in a.h5 b.h5; do "$NPUDIFF" compare c.h5 $file -e logits -q; done
capture cnn.w8a8 -d emu:htp-v73 -p uniform:2 -o d.h5
"$NPUDIFF" explain --quantised "$cnn" d.h5 --layers --effect-samples 1 >layers
"$NPUDIFF" explain --quantised "$cnn" d.h5 --units --harm-samples 1 | cmp - layers
grep -c residual/conv layers
run placement "$cnn" --runs 0
run reduce "$cnn" --edge logits --replace
run fingerprint --keep x --section none
# No help shows them, and they are no suggestions.
for command in capture compare explain placement reduce fingerprint; do
    ! "$NPUDIFF" help $command | grep -wE -- '--(edges|edge|units|harm-samples|replace|runs|keep)'
done
run capture "$cnn" --edgse all
