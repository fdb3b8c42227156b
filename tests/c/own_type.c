// Sends a record of a type that a folder defines, as `tests/test_type_folders.py` expects it.
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
    const nervure_output *output;
    check(nervure_find_output(node, "state", &output));
    nervure_builder *state;
    check(nervure_builder_new(output, &state));
    check(nervure_builder_set_text(state, "joints[0].name", "elbow"));
    check(nervure_builder_set_number(state, "joints[0].angle", 1.5));
    check(nervure_builder_set_number(state, "hand.x", 0.5));
    refused(nervure_builder_set_text(state, "joints[0].angle", "far"));
    refused(nervure_builder_set_number(state, "joints[0].angel", 1.5));
    nervure_value value = nervure_from_builder(state);
    check(nervure_send(output, &value, NULL));
    value = nervure_from_text("no state");
    refused(nervure_send(output, &value, NULL));
    nervure_builder_free(state);
    nervure_disconnect(node);
    return 0;
}
