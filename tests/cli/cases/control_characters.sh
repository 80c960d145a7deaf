# What strangers write into names does not reach the terminal as commands to it.
shown() { "$NPUDIFF" "$@" 2>&1 | cat -v; }
capture cnn.w8a8 -d emu:half-even -p zeros -o a.h5
evil=$(printf 'x\033]0;title\007\033[2J\302\233\342\200\256.h5')
cp a.h5 "$evil"
shown compare "$evil" a.h5
shown compare "$evil" missing.h5
"$NPUDIFF" info "$evil" | head -1
shown ls "$(printf 'no\rthing.h5')"
shown compare "$evil" a.h5 --color always
shown info "gone$evil"
