# The table of commands, by each of its names; and no command at all, which is a mistake.
"$NPUDIFF" --help >help
"$NPUDIFF" -h | cmp - help
"$NPUDIFF" help | cmp - help
"$NPUDIFF" capture -h | cmp - <("$NPUDIFF" capture --help)
"$NPUDIFF" capture model.onnx --repeats 0 --help | cmp - <("$NPUDIFF" capture --help)
cat help
"$NPUDIFF" 2>no_command && exit 1
cmp no_command help
"$NPUDIFF"
