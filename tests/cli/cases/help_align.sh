# The option table of one command.
"$NPUDIFF" align --help
