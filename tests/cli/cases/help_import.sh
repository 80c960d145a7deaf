# The option table of one command.
"$NPUDIFF" import --help
