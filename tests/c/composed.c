// A component: sends 20 numbers, and calls exit if its parameter `exits` says so.
#include <nervure.h>
#include <stdio.h>
#include <stdlib.h>

static int run(nervure_node *node) {
    const nervure_output *out;
    nervure_value exits;
    if (nervure_find_output(node, "out", &out) != NERVURE_STATUS_OK ||
        nervure_param(node, "exits", &exits) != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        return 1;
    }
    nervure_event event;
    for (int64_t sent = 0; sent < 20 && nervure_next(node, -1, &event) == NERVURE_STATUS_OK;) {
        if (event.kind == NERVURE_EVENT_KIND_TICK) {
            const nervure_value number = nervure_from_integer(sent++);
            if (nervure_send(out, &number, NULL) != NERVURE_STATUS_OK) {
                fprintf(stderr, "%s\n", nervure_error());
                return 1;
            }
        }
    }
    if (exits.as.boolean) {
        printf("calls exit");
        exit(7);
    }
    return 0;
}

NERVURE_COMPONENT(run)
