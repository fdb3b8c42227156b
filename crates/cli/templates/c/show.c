// A sink: prints its inputs.
#include <nervure.h>

#include <stdio.h>

int main(void) {
    nervure_node *node;
    if (nervure_connect(&node) != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        return 1;
    }
    nervure_event event;
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        nervure_value value;
        if (event.kind == NERVURE_EVENT_KIND_INPUT &&
            nervure_sample_value(event.sample, &value) == NERVURE_STATUS_OK && value.kind == NERVURE_KIND_FLOAT) {
            printf("%.0f\n", value.as.number);
            fflush(stdout);
        }
    }
    nervure_disconnect(node);
    return 0;
}
