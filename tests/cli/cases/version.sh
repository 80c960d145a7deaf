# The versions of npudiff and of every library that it links, and of the agent.
"$NPUDIFF" --version >versions
head -1 versions
sed 1d versions | grep -vE '^[a-zA-Z0-9-]+ [0-9]+(\.[0-9]+)+$' && exit 1
sed 1d versions | cut -d' ' -f1
"$BUILT/../devices/agent/npudiff-agent" --version
