# The table of commands, by each of its names; and no command at all, which is a mistake.
"$NPUDIFF" --help >help
"$NPUDIFF" -h | cmp - help
"$NPUDIFF" help | cmp - help
"$NPUDIFF" capture -h | cmp - <("$NPUDIFF" capture --help)
"$NPUDIFF" --help capture | cmp - <("$NPUDIFF" capture --help)
for command in $(sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' help); do
    "$NPUDIFF" help "$command" | cmp - <("$NPUDIFF" "$command" --help)
    "$NPUDIFF" help "$command" | head -1 | grep -q "^usage: npudiff $command "
done
[ "$("$NPUDIFF" help captrue 2>&1 || echo $?)" = "npudiff: unknown command 'captrue'; did you mean 'capture'? 'npudiff help' lists the commands [ND-113]
2" ]
"$NPUDIFF" capture model.onnx --repeats 0 --help | cmp - <("$NPUDIFF" capture --help)
cat help
"$NPUDIFF" 2>no_command && exit 1
cmp no_command help
"$NPUDIFF"
