# Files that are no models, in front of a device that would run them.
run capture missing.onnx -d cpu -o x
mkdir folder
run capture folder -d cpu -o x
for name in text empty picture lfs_pointer truncated missing_input external_missing external_escapes rank_nine; do
    run capture "$GOLDEN/bad/models/$name.onnx" -d cpu -o x
done
ls
