#include "npudiff/parse.h"
