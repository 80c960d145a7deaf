# Stores that are none, or damaged: named, and left as they are.
export SOURCE_DATE_EPOCH=1000000000
capture mul.u8 -d emu:half-even -p zeros -o a.h5
capture mul.u8 -d emu:floor -p zeros -o b.h5
tell() { run "$@" | sed -E 's/\b[0-9a-f]{12}\b/ENTRY/g; s/[0-9a-f]{64}/SHA256/g; s/is [0-9a-f]{16}\.\.\./is DIGITS.../; s/ +/ /g'; }
tell golden list nowhere
mkdir mine && touch mine/file
tell golden add mine a.h5
ls mine
mkdir new old && echo '{"npudiff_store": 2}' > new/store.json && echo '{' > old/store.json
tell golden list new
tell golden list old
tell golden add store a.h5 b.h5
python - <<'PY'
import hashlib, pathlib
first, second = sorted(pathlib.Path("store/entries").iterdir())
text = first.read_bytes()
first.write_bytes(text.replace(b"emu:", b"EMU:"))
newer = second.read_bytes().replace(b'"npudiff_entry":1', b'"npudiff_entry":2')
(second.parent / f"{hashlib.sha256(newer).hexdigest()}.json").write_bytes(newer)
(second.parent / "notes.txt").write_bytes(b"")
PY
code_of golden list -v store
tell golden list -v store | grep skipped | sort
"$NPUDIFF" golden list -v store 2>/dev/null | wc -l
tell golden prune store --keep 1 | grep -v skipped
ls store/entries | wc -l
tell golden
tell golden frob store
tell golden check store
tell golden check store a.h5 --keep 2
tell golden check store --runtime qairt-2.51.0
tell golden list -v store extra
