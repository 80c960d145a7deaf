# The option table of one command.
"$NPUDIFF" bundle --help
