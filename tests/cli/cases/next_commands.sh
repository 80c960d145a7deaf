# The commands that the texts end with can be pasted where the user stands: from explain to the vendor's reproducer.
mkdir -p home/models && cd home
cp "$GOLDEN/models/cnn.w8a8.onnx" models/
"$NPUDIFF" capture models/cnn.w8a8.onnx -d cpu -d emu:htp-v73,stale@residual/conv -p uniform:8 -o captures -q
# What stands after "Next, ...:" in the text, as one line.
next_of() { python -c "import re, sys; print(re.search(r'Next,[^:]*:\n(.*)', sys.stdin.read(), re.S)[1].strip().replace('\\\\\n', ' '))" <"$1" | tr -s ' '; }
npudiff() { "$NPUDIFF" "$@"; }
"$NPUDIFF" compare captures/cpu.h5 captures/emu-htp-v73-stale-residual-conv.h5 >compare.txt 2>/dev/null || true
next_of compare.txt
eval "$(next_of compare.txt)" 2>/dev/null | head -n 1
"$NPUDIFF" explain --quantised models/cnn.w8a8.onnx captures/emu-htp-v73-stale-residual-conv.h5 >explain.txt 2>/dev/null || true
next_of explain.txt
eval "$(next_of explain.txt)" >reduce.txt 2>/dev/null
grep -A1 REDUCED reduce.txt
next_of reduce.txt
(cd reproducer && eval "$(next_of ../reduce.txt)" 2>/dev/null) | grep -A1 DIFFERS
# Elsewhere the capture's path of the model leads nowhere: the text asks for it.
(cd .. && "$NPUDIFF" compare home/captures/cpu.h5 home/captures/emu-htp-v73-stale-residual-conv.h5 2>/dev/null | tail -n 4)
# Without --differs there is nothing to reduce: an emulated device fails nowhere.
run reduce models/cnn.w8a8.onnx -d emu:htp-v73,stale@residual/conv -q
