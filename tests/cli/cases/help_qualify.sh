# The option table of one command.
"$NPUDIFF" qualify --help
