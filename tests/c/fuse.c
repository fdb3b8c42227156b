/* Prints the samples that belong together, as `tests/test_c.py` expects it. */
#include <nervure.h>

#include <inttypes.h>
#include <stdio.h>

static int64_t integer(const nervure_set *set, const char *input, size_t index) {
    nervure_value value;
    const nervure_sample *sample = nervure_set_sample(set, input, index);
    if (sample == NULL || nervure_sample_value(sample, &value) != NERVURE_STATUS_OK || value.kind != NERVURE_KIND_INTEGER) {
        return -1;
    }
    return value.as.integer;
}

int main(void) {
    nervure_node *node;
    nervure_event event;
    if (nervure_connect(&node) != NERVURE_STATUS_OK) {
        return 1;
    }
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind == NERVURE_EVENT_KIND_SYNC) {
            printf("%" PRId64 " + %" PRId64 " +", integer(event.set, "image", 0), integer(event.set, "cloud", 0));
            for (size_t index = 0; index < nervure_set_count(event.set, "imu"); index++) {
                printf(" %" PRId64, integer(event.set, "imu", index));
            }
            printf("\n");
            if (nervure_set_count(event.set, "none") != 0 || nervure_set_sample(event.set, "image", 1) != NULL) {
                return 1;
            }
        } else if (event.set != NULL || nervure_set_count(event.set, "image") != 0) {
            return 1;
        }
    }
    nervure_disconnect(node);
    return 0;
}
