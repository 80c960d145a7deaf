# The option table of one command.
"$NPUDIFF" run --help
