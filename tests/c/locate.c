/* Prints the poses of a camera at the stamps of its images, as `tests/test_c.py` expects it. */
#include <nervure.h>

#include <stdio.h>

int main(void) {
    nervure_node *node;
    nervure_event event;
    nervure_transform found;
    nervure_info info;
    const int64_t second = 1000000000;
    if (nervure_connect(&node) != NERVURE_STATUS_OK) {
        return 1;
    }
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind != NERVURE_EVENT_KIND_INPUT) {
            continue;
        }
        nervure_sample_info(event.sample, &info);
        if (nervure_transform_lookup(node, "map", "camera", info.stamp, 30 * second, &found) != NERVURE_STATUS_OK) {
            fprintf(stderr, "%s\n", nervure_error());
            return 1;
        }
        printf("%.1f %.1f %.1f, w %.1f\n", found.translation[0], found.translation[1], found.translation[2],
               found.rotation[3]);
    }
    if (nervure_transform_lookup(node, "base", "camera", 0, 0, &found) != NERVURE_STATUS_OK || found.stamp != 0) {
        return 1;
    }
    if (nervure_transform_lookup(node, "map", "base", 0, 0, &found) != NERVURE_STATUS_OK || found.stamp != 2 * second) {
        return 1;
    }
    if (nervure_transform_lookup(node, "map", "camara", 0, 0, &found) != NERVURE_STATUS_TRANSFORM) {
        return 1;
    }
    printf("%s\n", nervure_error());
    if (nervure_transform_lookup(node, NULL, "camera", 0, 0, &found) != NERVURE_STATUS_ARGUMENT ||
        nervure_transform_lookup(node, "map", "base", 0, 0, NULL) != NERVURE_STATUS_ARGUMENT) {
        return 1;
    }
    nervure_disconnect(node);
    return 0;
}
