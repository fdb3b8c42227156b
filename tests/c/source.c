// Sends a value of each kind, as `tests/test_c.py` expects them.
#include <nervure.h>
#include <stdio.h>
#include <stdlib.h>

static void check(nervure_status status) {
    if (status != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        exit(1);
    }
}

static void expect(nervure_status status, nervure_status expected) {
    if (status != expected) {
        fprintf(stderr, "expected status %d, got %d: %s\n", expected, status, nervure_error());
        exit(1);
    }
    printf("refused: %s\n", nervure_error());
}

// An Arrow array of three integers, the second of which is null.
static const int32_t numbers[] = {1, 0, 3};
static const uint8_t validity[] = {5};
static const void *buffers[] = {validity, numbers};
static int released = 0;

static void release_array(struct ArrowArray *array) {
    released++;
    array->release = NULL;
}

static void release_schema(struct ArrowSchema *schema) {
    released++;
    schema->release = NULL;
}

static void send_arrow(const nervure_output *output) {
    struct ArrowSchema schema = {.format = "i", .name = "", .flags = ARROW_FLAG_NULLABLE, .release = release_schema};
    struct ArrowArray array = {
        .length = 3, .null_count = 1, .n_buffers = 2, .buffers = buffers, .release = release_array};
    nervure_value value = {.kind = NERVURE_KIND_ARROW, .as.arrow = {&array, &schema}};
    check(nervure_send(output, &value, NULL));
    if (released != 2 || array.release != NULL || schema.release != NULL) {
        fprintf(stderr, "the array was not released: %d\n", released);
        exit(1);
    }
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
}

static void send_bad(nervure_node *node, const nervure_output *output) {
    nervure_value value = {.kind = (nervure_kind)99};
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
    expect(nervure_send(output, NULL, NULL), NERVURE_STATUS_ARGUMENT);
    expect(nervure_send(NULL, &value, NULL), NERVURE_STATUS_ARGUMENT);
    value = nervure_from_bytes(NULL, 3);
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
    value = nervure_from_text("\xff");
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
    const size_t huge[] = {SIZE_MAX / 2, 3};
    value = nervure_from_tensor(NERVURE_DTYPE_F64, 2, huge, numbers);
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
    value = nervure_from_tensor(NERVURE_DTYPE_F64, 65, huge, numbers);
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
    value = nervure_from_tensor((nervure_dtype)77, 1, huge, numbers);
    expect(nervure_send(output, &value, NULL), NERVURE_STATUS_ARGUMENT);
    const nervure_output *none;
    expect(nervure_find_output(node, "outt", &none), NERVURE_STATUS_UNKNOWN_NAME);
    expect(nervure_find_output(node, NULL, &none), NERVURE_STATUS_ARGUMENT);
    expect(nervure_param(node, "depth", &value), NERVURE_STATUS_UNKNOWN_NAME);
}

int main(void) {
    nervure_node *node;
    check(nervure_connect(&node));
    printf("%s of %s\n", nervure_node_id(node), nervure_node_dataflow(node));
    const nervure_output *out;
    check(nervure_find_output(node, "out", &out));

    nervure_value value = nervure_from_bytes("\0\1\2", 3);
    check(nervure_send(out, &value, NULL));
    value = nervure_from_bytes(NULL, 0);
    check(nervure_send(out, &value, NULL));
    value = nervure_from_text("gr\xc3\xbc\xc3\x9f");
    check(nervure_send(out, &value, NULL));
    value = nervure_from_bool(true);
    check(nervure_send(out, &value, NULL));
    value = nervure_from_integer(-7);
    check(nervure_send(out, &value, NULL));
    value = nervure_from_unsigned(UINT64_MAX);
    check(nervure_send(out, &value, NULL));
    value = nervure_from_number(2.5);
    check(nervure_send(out, &value, NULL));

    const float matrix[] = {1, 2, 3, 4, 5, 6};
    const size_t shape[] = {2, 3};
    nervure_metadata *metadata = nervure_metadata_new();
    nervure_value entry = nervure_from_text("left");
    check(nervure_metadata_set(metadata, "side", &entry));
    const int64_t list[] = {4, 5};
    const size_t two = 2;
    entry = nervure_from_tensor(NERVURE_DTYPE_I64, 1, &two, list);
    check(nervure_metadata_set(metadata, "sizes", &entry));
    entry = nervure_from_tensor(NERVURE_DTYPE_F32, 1, &two, matrix);
    expect(nervure_metadata_set(metadata, "floats", &entry), NERVURE_STATUS_ARGUMENT);
    nervure_envelope envelope = {.stamp = 1234567890, .metadata = metadata, .frame = "camera"};
    value = nervure_from_tensor(NERVURE_DTYPE_F32, 2, shape, matrix);
    check(nervure_send(out, &value, &envelope));
    nervure_metadata_free(metadata);

    // The first two columns: rows with a gap.
    const size_t columns[] = {2, 2}, strides[] = {3 * sizeof(float), sizeof(float)};
    value.as.tensor.shape = columns;
    value.as.tensor.strides = strides;
    check(nervure_send(out, &value, NULL));

    void *memory;
    nervure_loan *loan;
    value = nervure_from_tensor(NERVURE_DTYPE_U8, 2, (size_t[]){480, 640}, NULL);
    check(nervure_borrow(out, &value, &memory, &loan));
    memset(memory, 7, 480 * 640);
    check(nervure_loan_send(loan, NULL));
    check(nervure_borrow(out, &value, &memory, &loan));
    nervure_loan_free(loan);

    send_arrow(out);
    send_bad(node, out);

    nervure_value param;
    check(nervure_param(node, "rate", &param));
    check(nervure_send(out, &param, NULL));
    check(nervure_param(node, "list", &param));
    check(nervure_send(out, &param, NULL));
    nervure_disconnect(node);
    return 0;
}
