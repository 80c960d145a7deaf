# Campaigns and policies that cannot be followed: the line and column, exit 2, and nothing is made.
cp -r "$GOLDEN/campaigns" "$GOLDEN/models" .
cd campaigns/bad
for file in *.yaml; do
    run qualify "$file" -o out
done
run qualify missing.yaml -o out
run qualify ../demo.yaml
[ ! -e out ] || find out
