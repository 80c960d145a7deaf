# The option table of one command.
"$NPUDIFF" info --help
