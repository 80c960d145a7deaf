# The option table of one command.
"$NPUDIFF" lint --help
