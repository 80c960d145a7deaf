# The library does not set what belongs to the whole process, and so to other threads of its user: umask() cannot be asked
# without being set.
library=$BUILT/../libnpudiff.so
nm -D --undefined-only "$library" | grep -qw malloc # that nm understands it
! nm -D --undefined-only "$library" | grep -wE 'umask|setlocale|srand|srandom'
