"$NPUDIFF" --version
"$(dirname "$NPUDIFF")/../agent/npudiff-agent" --version
