# The option table of one command.
"$NPUDIFF" promote --help
