# The option table of one command.
"$NPUDIFF" explain --help
