# The option table of one command.
"$NPUDIFF" plan --help
