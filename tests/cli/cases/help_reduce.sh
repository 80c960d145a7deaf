# The option table of one command.
"$NPUDIFF" reduce --help
