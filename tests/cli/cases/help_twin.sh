# The option table of one command.
"$NPUDIFF" twin --help
