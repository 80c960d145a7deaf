/* A runner in C, by the header alone: it says hello and refuses every job. */
#include "npudiff/devices/runner/frames.h"

int main(void)
{
    struct npudiff_link link;
    struct npudiff_frame frame = {0};
    if (npudiff_link_open(&link) != 0 ||
        npudiff_send(&link,
                     "{\"message\": \"hello\", \"protocol\": 2, \"name\": \"header\", \"version\": \"1\"}",
                     NULL, 0) != 0)
        return 1;
    while (npudiff_receive(&link, &frame) == 1)
        npudiff_send(&link,
                     "{\"message\": \"error\", \"stage\": \"load\", \"text\": \"this runner only refuses\"}",
                     NULL, 0);
    npudiff_frame_free(&frame);
    return 0;
}
