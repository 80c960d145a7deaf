# The option table of one command.
"$NPUDIFF" latency --help
