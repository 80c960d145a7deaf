# The option table of one command.
"$NPUDIFF" config --help
