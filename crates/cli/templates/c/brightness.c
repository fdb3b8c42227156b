// A task: computes something from each picture.
#include <nervure.h>

#include <stdio.h>
#include <stdlib.h>

static void check(nervure_status status) {
    if (status == NERVURE_STATUS_STOPPED) {
        exit(0);
    }
    if (status != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        exit(1);
    }
}

// The mean of all pixels, from 0 to 255; 0 for no pixels.
static double brightness(const uint8_t *pixels, size_t count) {
    uint64_t sum = 0;
    for (size_t at = 0; at < count; at++) {
        sum += pixels[at];
    }
    return count > 0 ? (double)sum / (double)count : 0.0;
}

int main(void) {
    nervure_node *node;
    check(nervure_connect(&node));
    const nervure_output *output;
    check(nervure_find_output(node, "brightness", &output));
    nervure_event event;
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind == NERVURE_EVENT_KIND_INPUT) {
            nervure_bytes pixels;
            check(nervure_sample_bytes(event.sample, &pixels));
            const nervure_value mean = nervure_from_number(brightness(pixels.data, pixels.size));
            // `like` keeps the time at which the picture was taken.
            const nervure_envelope envelope = {.like = event.sample};
            check(nervure_send(output, &mean, &envelope));
        }
    }
    nervure_disconnect(node);
    return 0;
}
