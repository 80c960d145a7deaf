# The suite draws from fixed seeds only, so that it gives the same answer on every machine; tools/studies/seeds tries new ones.
cd "$ROOT/tests"
! grep -rnE '(^|[^._a-z])random\.(choice|randint|random|randrange|sample|shuffle|uniform)\(|SystemRandom|urandom|Random\(\)|default_rng\(\)|RandomState\(\)|seed.*time\(NULL\)|seed.*time_ns|\$RANDOM' \
    --include='*.py' --include='*.c' --include='*.h' --include='*.sh' --exclude=tests_fixed_seeds.sh unit e2e support cli
grep -q "'MALLOC_PERTURB_': '165'" meson.build unit/meson.build # which meson draws otherwise
