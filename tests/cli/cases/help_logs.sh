"$NPUDIFF" logs --help
