# The option table of one command.
"$NPUDIFF" placement --help
