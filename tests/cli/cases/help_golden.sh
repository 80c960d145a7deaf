# The option table of one command.
"$NPUDIFF" golden --help
