# The option table of one command.
"$NPUDIFF" ls --help
