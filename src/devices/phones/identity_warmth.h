/* Battery and temperatures, as Android's services or the kernel's files tell them. */
#ifndef ND_REMOTE_IDENTITY_WARMTH_H
#define ND_REMOTE_IDENTITY_WARMTH_H

#include "core/text/strbuf.h"
#include "capture/read/attr_list.h"
#include "devices/phones/identity_text.h"

/* Appends the commands that ask for them; each part begins with a line of the marker. Uses $T, what a command
 * that may hang is started with. */
void nd_warmth_question(struct nd_strbuf *question, const char *marker);

/* Adds what the answer says as attributes "battery_<when>_..." and "thermal_<when>_..." of /device. when:
 * "before", "after". False when out of memory. */
bool nd_warmth_parse(const char *marker, struct nd_piece answer, const char *when, struct nd_attr_list *out);

#endif
