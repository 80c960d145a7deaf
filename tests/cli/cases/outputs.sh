# What -o may name: a regular file; for text also a pipe or /dev/stdout. Everything else stays what it is.
capture cnn.w8a8 -d emu:half-even -p zeros -o a.h5
model=$GOLDEN/models/cnn.w8a8.onnx
kinds() { for name in "$@"; do printf '%s: %s\n' "$name" "$(stat -c %F "$name")"; done; }
ln -s /dev/null link
ln -s /dev/null link.h5
mkfifo pipe pipe.h5
mkdir folder folder.h5
for place in link pipe folder; do
    run capture "$model" -d emu:half-even -p zeros -o $place.h5 -f -q
    run export aihub a.h5 -o $place -f
    run encodings apply "$model" "$GOLDEN/encodings/cnn.per-tensor.1.0.0.encodings" -o $place
done
run golden bundle a.h5 -o folder -f
kinds link pipe folder /dev/null
# text: through the link into the device, into the pipe, onto the terminal
run golden bundle a.h5 -o link -f -q
cat pipe >through-pipe.json &
run golden bundle a.h5 -o pipe -q
wait
run golden bundle a.h5 -o regular.json -q
cmp regular.json through-pipe.json
"$NPUDIFF" golden bundle a.h5 -o /dev/stdout -q | cmp - regular.json
kinds link pipe /dev/null
# the name that an older version would have written first, as a link to somebody's file
echo precious >victim
(sh -c 'ln -s victim "regular.json.tmp-$$"; exec "$NPUDIFF" golden bundle a.h5 -o regular.json -f -q')
cat victim
