# The option table of one command.
"$NPUDIFF" probes --help
