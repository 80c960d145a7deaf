# The option table of one command.
"$NPUDIFF" devices --help
