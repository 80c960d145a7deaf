# The option table of one command.
"$NPUDIFF" export --help
