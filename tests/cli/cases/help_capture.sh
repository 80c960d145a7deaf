# The option table of one command.
"$NPUDIFF" capture --help
