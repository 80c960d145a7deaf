# Colours only on a terminal or when asked for; the width; Markdown for a workflow.
capture cnn.w8a8 -d exact -d emu:floor -p zeros -o c
show() { "$NPUDIFF" compare c/exact.h5 c/emu-floor.h5 "$@" | sed 's/\x1b/ESC/g' || true; }
echo "a pipe: $(show | head -n 1)"
echo "always: $(show --color=always | head -n 1)"
echo "never: $(show --color=never | head -n 1)"
# On a terminal, 60 columns wide; NO_COLOR counts only when it is not empty.
terminal() { env "$@" script -qec "stty cols 60; '$NPUDIFF' compare c/exact.h5 c/emu-floor.h5" /dev/null </dev/null | tr -d '\r' | sed 's/\x1b/ESC/g' | head -n 3 || true; }
echo "a terminal:" && terminal NO_COLOR= TERM=xterm
echo "NO_COLOR:" && terminal NO_COLOR=1 TERM=xterm
COLUMNS=50 "$NPUDIFF" compare c/exact.h5 c/emu-floor.h5 | awk 'length($0) > 50 { print "wide: " $0 }' || true
"$NPUDIFF" compare c/exact.h5 c/emu-floor.h5 --format github | head -n 4 || true
