# The option table of one command.
"$NPUDIFF" init --help
