/* `npudiff verify --paranoid`: the checks of npudiff/audit.h, one function each. What goes in is an open
 * capture, and perhaps its model; what comes out says how much was looked at and what is wrong first. Next:
 * foreign/. */
#pragma once

#include "npudiff/explain/audit.h"
#include "npudiff/model/model.h"
