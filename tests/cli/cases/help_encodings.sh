# The option table of one command.
"$NPUDIFF" encodings --help
