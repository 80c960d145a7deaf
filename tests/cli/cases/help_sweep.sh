# The option table of one command.
"$NPUDIFF" sweep --help
