// A source: a picture at each tick, filled in place in shared memory.
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

int main(void) {
    nervure_node *node;
    check(nervure_connect(&node));
    const nervure_output *images;
    check(nervure_find_output(node, "image", &images));
    const size_t shape[] = {480, 640};
    const nervure_value image = nervure_from_tensor(NERVURE_DTYPE_U8, 2, shape, NULL);
    uint8_t grey = 0;
    nervure_event event;
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind == NERVURE_EVENT_KIND_TICK) {
            void *pixels;
            nervure_loan *loan;
            check(nervure_borrow(images, &image, &pixels, &loan));
            memset(pixels, grey, shape[0] * shape[1]);
            const nervure_envelope envelope = {.stamp = event.due};
            check(nervure_loan_send(loan, &envelope));
            grey += 10;
        }
    }
    nervure_disconnect(node);
    return 0;
}
