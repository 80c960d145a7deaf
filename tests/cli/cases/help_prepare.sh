# The option table of one command.
"$NPUDIFF" prepare --help
