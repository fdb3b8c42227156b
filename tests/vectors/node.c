// Writes or reads the vectors: `node write` or `node read`.
#include "vectors.h"

static void check(nervure_status status, const char *name) {
    if (status != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", name, nervure_error());
        exit(1);
    }
}

static void write_all(nervure_node *node, const struct vectors *vectors) {
    const nervure_output *out;
    check(nervure_find_output(node, "out", &out), "out");
    for (size_t at = 0; at < vectors->count; at++) {
        const struct vector *vector = &vectors->items[at];
        struct ArrowArray array;
        struct ArrowSchema schema;
        nervure_value value = vectors_exported(vector, &array, &schema);
        nervure_metadata *metadata = nervure_metadata_new();
        const nervure_value number = nervure_from_integer(vector->number);
        check(nervure_metadata_set(metadata, "vector", &number), vector->name);
        const nervure_envelope envelope = {.metadata = metadata};
        const nervure_status status = nervure_send(out, &value, &envelope);
        if (vector->is_custom && status != NERVURE_STATUS_ARGUMENT) {
            fprintf(stderr, "%s was sent\n", vector->name);
            exit(1);
        }
        if (!vector->is_custom) {
            check(status, vector->name);
        }
        nervure_metadata_free(metadata);
    }
}

static void read_all(nervure_node *node, const struct vectors *vectors) {
    FILE *verdicts = fopen("verdicts-c", "w");
    // By the first letter of the writer.
    unsigned right[256] = {0};
    nervure_event event;
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind != NERVURE_EVENT_KIND_INPUT) {
            continue;
        }
        char name[64] = "";
        const int64_t number = vectors_number(event.sample, name, sizeof name);
        if (number < 0) {
            fprintf(verdicts, "%s %s\n", name, vectors_is_read(event.sample) ? "read" : "refused");
            continue;
        }
        const struct vector *vector = vectors->items;
        while (vector->number != number) {
            vector++;
        }
        if (vectors_is_same(event.sample, vector)) {
            right[(unsigned char)event.id[0]]++;
        } else {
            printf("wrong: %s of %s\n", vector->name, event.id);
        }
    }
    fclose(verdicts);
    const char *writers[] = {"c", "python", "rust", "xx"};
    for (size_t at = 0; at < 4; at++) {
        printf("%u of %s are right\n", right[(unsigned char)writers[at][0]], writers[at]);
    }
}

int main(int count, char **arguments) {
    nervure_node *node;
    check(nervure_connect(&node), "node");
    // They stay until the end.
    static struct vectors vectors;
    vectors = vectors_read();
    if (count == 2 && strcmp(arguments[1], "write") == 0) {
        write_all(node, &vectors);
    } else {
        read_all(node, &vectors);
    }
    nervure_disconnect(node);
    return 0;
}
