# The option table of one command.
"$NPUDIFF" compare --help
