/* The C locale for numbers: whatever the program's locale is, a decimal point is a point. */
#pragma once

#include <locale.h>

/* The calling thread writes and reads numbers in the C locale from now on; give the result to uselocale to end
 * that. Thread safe. */
locale_t nd_use_c_locale(void);
