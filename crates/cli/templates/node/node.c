// Purpose of this node, in one sentence.
#include <nervure.h>

#include <stdio.h>

int main(void) {
    nervure_node *node;
    const nervure_output *output;
    nervure_status status = nervure_connect(&node);
    if (status == NERVURE_STATUS_OK) {
        status = nervure_find_output(node, "output", &output);
    }
    nervure_event event;
    while (status == NERVURE_STATUS_OK && nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        nervure_bytes bytes;
        if (event.kind == NERVURE_EVENT_KIND_INPUT && nervure_sample_bytes(event.sample, &bytes) == NERVURE_STATUS_OK) {
            const nervure_value value = nervure_from_bytes(bytes.data, bytes.size);
            const nervure_envelope envelope = {.like = event.sample};
            status = nervure_send(output, &value, &envelope);
        }
    }
    if (status < 0 && status != NERVURE_STATUS_STOPPED) {
        fprintf(stderr, "%s\n", nervure_error());
        return 1;
    }
    nervure_disconnect(node);
    return 0;
}
