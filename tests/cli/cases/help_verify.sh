# The option table of one command.
"$NPUDIFF" verify --help
