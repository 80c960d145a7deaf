# The option table of one command.
"$NPUDIFF" report --help
