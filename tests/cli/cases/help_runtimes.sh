# The option table of one command.
"$NPUDIFF" runtimes --help
