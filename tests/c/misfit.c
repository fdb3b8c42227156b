// Sends samples that do not fit the types of their outputs, as `tests/test_c.py` expects them.
#include <nervure.h>
#include <stdio.h>
#include <stdlib.h>

static void check(nervure_status status) {
    if (status != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        exit(1);
    }
}

static void refused(nervure_status status) {
    if (status != NERVURE_STATUS_KIND) {
        fprintf(stderr, "expected a refusal, got %d: %s\n", status, nervure_error());
        exit(1);
    }
    printf("refused: %s\n", nervure_error());
}

int main(void) {
    nervure_node *node;
    check(nervure_connect(&node));
    const nervure_output *image, *imu;
    check(nervure_find_output(node, "image", &image));
    check(nervure_find_output(node, "imu", &imu));
    const size_t shape[] = {2, 3};
    const uint8_t pixels[] = {1, 2, 3, 4, 5, 6};
    nervure_value value = nervure_from_tensor(NERVURE_DTYPE_U8, 2, shape, pixels);
    check(nervure_send(image, &value, NULL));
    refused(nervure_send(imu, &value, NULL));
    value = nervure_from_tensor(NERVURE_DTYPE_U8, 1, shape, pixels);
    refused(nervure_send(image, &value, NULL));
    value = nervure_from_text("no image");
    refused(nervure_send(image, &value, NULL));
    nervure_disconnect(node);
    return 0;
}
