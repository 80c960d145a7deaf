# The option table of one command.
"$NPUDIFF" triage --help
