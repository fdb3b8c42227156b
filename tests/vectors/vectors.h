// The vectors of `vectors.py`, for nodes in C and C++: reads them, and compares values with them.
#ifndef VECTORS_H
#define VECTORS_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // strsep
#endif

#include <nervure.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vector {
    int64_t number;
    const char *name;
    // Elements of a type that only NumPy has: it is received, and not sent.
    bool is_custom;
    struct nervure_value value;
};

struct vectors {
    size_t count;
    struct vector *items;
};

// Position in the two files while they are read.
struct vectors_reader {
    char *words;
    unsigned char *blob;
};

static inline void vectors_fail(const char *why) {
    fprintf(stderr, "the vectors cannot be read: %s\n", why);
    exit(1);
}

static inline void *vectors_new(size_t count, size_t size) {
    void *memory = calloc(count + 1, size);
    if (memory == NULL) {
        vectors_fail("there is no memory");
    }
    return memory;
}

static inline char *vectors_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        vectors_fail(path);
    }
    const size_t size = (size_t)ftell(file);
    rewind(file);
    char *bytes = (char *)vectors_new(size, 1);
    if (fread(bytes, 1, size, file) != size) {
        vectors_fail(path);
    }
    fclose(file);
    return bytes;
}

static inline const char *vectors_word(struct vectors_reader *reader) {
    const char *word = strsep(&reader->words, " ");
    if (word == NULL) {
        vectors_fail("a line is too short");
    }
    return word;
}

static inline int64_t vectors_integer(struct vectors_reader *reader) {
    return strtoll(vectors_word(reader), NULL, 10);
}

static inline struct nervure_bytes vectors_range(struct vectors_reader *reader) {
    struct nervure_bytes bytes = {NULL, 0};
    const char *word = vectors_word(reader);
    if (strcmp(word, "-") != 0) {
        char *colon;
        bytes.data = reader->blob + strtoull(word, &colon, 10);
        bytes.size = strtoull(colon + 1, NULL, 10);
    }
    return bytes;
}

// Exported arrays and schemas stay until the process ends, so a release frees nothing.
static inline void vectors_release_array(struct ArrowArray *array) { array->release = NULL; }
static inline void vectors_release_schema(struct ArrowSchema *schema) { schema->release = NULL; }

static inline void vectors_arrow(struct vectors_reader *reader, struct ArrowArray *array, struct ArrowSchema *schema) {
    schema->format = (const char *)vectors_range(reader).data;
    schema->name = (const char *)vectors_range(reader).data;
    schema->flags = vectors_integer(reader);
    schema->release = vectors_release_schema;
    array->length = vectors_integer(reader);
    array->null_count = vectors_integer(reader);
    array->offset = vectors_integer(reader);
    array->release = vectors_release_array;
    array->n_buffers = vectors_integer(reader);
    array->buffers = (const void **)vectors_new((size_t)array->n_buffers, sizeof(void *));
    for (int64_t at = 0; at < array->n_buffers; at++) {
        array->buffers[at] = vectors_range(reader).data;
    }
    array->n_children = schema->n_children = vectors_integer(reader);
    array->children = (struct ArrowArray **)vectors_new((size_t)array->n_children, sizeof(void *));
    schema->children = (struct ArrowSchema **)vectors_new((size_t)array->n_children, sizeof(void *));
    for (int64_t at = 0; at <= array->n_children; at++) {
        const bool is_dictionary = at == array->n_children;
        if (is_dictionary && vectors_integer(reader) == 0) {
            break;
        }
        struct ArrowArray *child = (struct ArrowArray *)vectors_new(1, sizeof *child);
        struct ArrowSchema *type = (struct ArrowSchema *)vectors_new(1, sizeof *type);
        vectors_arrow(reader, child, type);
        if (is_dictionary) {
            array->dictionary = child;
            schema->dictionary = type;
        } else {
            array->children[at] = child;
            schema->children[at] = type;
        }
    }
}

static inline void vectors_tensor(struct vectors_reader *reader, struct vector *vector) {
    struct nervure_tensor *tensor = &vector->value.as.tensor;
    vector->value.kind = NERVURE_KIND_TENSOR;
    if (vector->is_custom) {
        tensor->dtype = NERVURE_DTYPE_CUSTOM;
        tensor->item_size = (size_t)vectors_integer(reader);
    } else {
        tensor->dtype = (nervure_dtype)vectors_integer(reader);
        tensor->item_size = nervure_dtype_size(tensor->dtype);
    }
    tensor->dimensions = (size_t)vectors_integer(reader);
    size_t *numbers = (size_t *)vectors_new(2 * tensor->dimensions, sizeof *numbers);
    tensor->shape = numbers;
    const size_t count = vector->is_custom ? tensor->dimensions : 2 * tensor->dimensions;
    for (size_t at = 0; at < count; at++) {
        numbers[at] = (size_t)vectors_integer(reader);
    }
    if (!vector->is_custom) {
        tensor->strides = numbers + tensor->dimensions;
        tensor->data = vectors_range(reader).data;
    }
}

static inline void vectors_value(struct vectors_reader *reader, struct vector *vector) {
    const char *kind = vectors_word(reader);
    if (strcmp(kind, "bytes") == 0 || strcmp(kind, "text") == 0) {
        const struct nervure_bytes bytes = vectors_range(reader);
        vector->value = nervure_from_bytes(bytes.data, bytes.size);
        vector->value.kind = kind[0] == 't' ? NERVURE_KIND_TEXT : NERVURE_KIND_BYTES;
    } else if (strcmp(kind, "bool") == 0) {
        vector->value = nervure_from_bool(vectors_integer(reader) != 0);
    } else if (strcmp(kind, "integer") == 0) {
        vector->value = nervure_from_integer(vectors_integer(reader));
    } else if (strcmp(kind, "unsigned") == 0) {
        vector->value = nervure_from_unsigned(strtoull(vectors_word(reader), NULL, 10));
    } else if (strcmp(kind, "float") == 0) {
        const uint64_t bits = strtoull(vectors_word(reader), NULL, 10);
        double number;
        memcpy(&number, &bits, sizeof number);
        vector->value = nervure_from_number(number);
    } else if (strcmp(kind, "arrow") == 0) {
        struct ArrowArray *array = (struct ArrowArray *)vectors_new(1, sizeof *array);
        struct ArrowSchema *schema = (struct ArrowSchema *)vectors_new(1, sizeof *schema);
        vectors_arrow(reader, array, schema);
        vector->value.kind = NERVURE_KIND_ARROW;
        vector->value.as.arrow.array = array;
        vector->value.as.arrow.schema = schema;
    } else {
        vector->is_custom = strcmp(kind, "custom") == 0;
        vectors_tensor(reader, vector);
    }
}

static inline struct vectors vectors_read(void) {
    char *lines = vectors_file("vectors");
    struct vectors_reader reader = {NULL, (unsigned char *)vectors_file("vectors.bin")};
    struct vectors vectors = {0, NULL};
    for (const char *at = lines; *at != 0; at++) {
        vectors.count += *at == '\n';
    }
    vectors.items = (struct vector *)vectors_new(vectors.count, sizeof *vectors.items);
    for (size_t at = 0; at < vectors.count; at++) {
        struct vector *vector = &vectors.items[at];
        char *line = strsep(&lines, "\n");
        char *bar = strchr(line, '|');
        *bar = 0;
        vector->name = bar + 2;
        reader.words = line;
        vector->number = vectors_integer(&reader);
        vectors_value(&reader, vector);
    }
    return vectors;
}

// The value of a vector, to be sent once: the send function takes ownership of the exported array and schema.
static inline struct nervure_value
vectors_exported(const struct vector *vector, struct ArrowArray *array, struct ArrowSchema *schema) {
    struct nervure_value value = vector->value;
    if (value.kind == NERVURE_KIND_ARROW) {
        *array = *value.as.arrow.array;
        *schema = *value.as.arrow.schema;
        value.as.arrow.array = array;
        value.as.arrow.schema = schema;
    }
    return value;
}

// The vector's number of a sample; -1 for a damaged sample, whose name is then in `name`.
static inline int64_t vectors_number(const nervure_sample *sample, char *name, size_t size) {
    nervure_metadata *metadata = NULL;
    nervure_value number;
    if (nervure_sample_metadata(sample, &metadata) != NERVURE_STATUS_OK ||
        nervure_metadata_get(metadata, "vector", &number) != NERVURE_STATUS_OK) {
        vectors_fail(nervure_error());
    }
    int64_t found = -1;
    if (number.kind == NERVURE_KIND_INTEGER) {
        found = number.as.integer;
    } else if (number.as.bytes.size < size) {
        memcpy(name, number.as.bytes.data, number.as.bytes.size);
        name[number.as.bytes.size] = 0;
    }
    nervure_metadata_free(metadata);
    return found;
}

static inline bool vectors_is_same_tensor(const struct nervure_tensor *found, const struct vector *vector) {
    const struct nervure_tensor *expected = &vector->value.as.tensor;
    if (found->dtype != expected->dtype || found->item_size != expected->item_size ||
        found->dimensions != expected->dimensions) {
        return false;
    }
    size_t count = 1;
    for (size_t axis = 0; axis < found->dimensions; axis++) {
        if (found->shape[axis] != expected->shape[axis]) {
            return false;
        }
        count *= found->shape[axis];
    }
    for (size_t element = 0; element < count && !vector->is_custom; element++) {
        size_t left = element, here = 0, there = 0, c_stride = found->item_size;
        for (size_t axis = found->dimensions; axis-- > 0; left /= found->shape[axis]) {
            const size_t at = left % found->shape[axis];
            here += at * (found->strides == NULL ? c_stride : found->strides[axis]);
            there += at * expected->strides[axis];
            c_stride *= found->shape[axis];
        }
        if (memcmp((const char *)found->data + here, (const char *)expected->data + there, found->item_size) != 0) {
            return false;
        }
    }
    return true;
}

// An array with its type.
struct vectors_array {
    const struct ArrowArray *array;
    const struct ArrowSchema *schema;
};

static inline struct vectors_array vectors_child(struct vectors_array of, int64_t at) {
    const struct vectors_array child = {of.array->children[at], of.schema->children[at]};
    return child;
}

static inline int64_t vectors_signed(const void *buffer, size_t width, int64_t at) {
    const unsigned char *bytes = (const unsigned char *)buffer + (size_t)at * width;
    uint64_t number = 0;
    for (size_t byte = 0; byte < width; byte++) {
        number |= (uint64_t)bytes[byte] << (8 * byte);
    }
    const unsigned unused = 64 - 8 * (unsigned)width;
    return (int64_t)(number << unused) >> unused;
}

static inline bool vectors_bit(const void *buffer, int64_t at) {
    return ((const unsigned char *)buffer)[at / 8] >> (at % 8) & 1;
}

// The size of an element in bytes; 0 for types whose elements have none.
static inline size_t vectors_width(const char *format) {
    switch (format[0]) {
    case 'c': case 'C': return 1;
    case 's': case 'S': case 'e': return 2;
    case 'i': case 'I': case 'f': return 4;
    case 'l': case 'L': case 'g': return 8;
    case 'w': return (size_t)atoi(format + 2);
    case 'd': {
        const char *bits = strchr(strchr(format, ',') + 1, ',');
        return bits == NULL ? 16 : (size_t)atoi(bits + 1) / 8;
    }
    case 't':
        if (strcmp(format, "tin") == 0) return 16;
        return strcmp(format, "tdD") == 0 || strcmp(format, "tts") == 0 || strcmp(format, "ttm") == 0 ||
                       strcmp(format, "tiM") == 0
                   ? 4 : 8;
    default: return 0;
    }
}

static inline bool vectors_is_null(struct vectors_array of, int64_t at) {
    const char *format = of.schema->format;
    const bool has_bitmap = strncmp(format, "+u", 2) != 0 && strcmp(format, "+r") != 0 && strcmp(format, "n") != 0;
    return has_bitmap && of.array->buffers[0] != NULL && !vectors_bit(of.array->buffers[0], at);
}

static inline struct nervure_bytes vectors_text(struct vectors_array of, int64_t at) {
    const void *const *buffers = of.array->buffers;
    struct nervure_bytes text;
    if (of.schema->format[0] == 'v') {
        const unsigned char *view = (const unsigned char *)buffers[1] + 16 * at;
        text.size = (size_t)vectors_signed(view, 4, 0);
        text.data = text.size <= 12 ? view + 4
                                    : (const unsigned char *)buffers[2 + vectors_signed(view, 4, 2)] +
                                          vectors_signed(view, 4, 3);
        return text;
    }
    const size_t width = of.schema->format[0] == 'u' || of.schema->format[0] == 'z' ? 4 : 8;
    const int64_t start = vectors_signed(buffers[1], width, at);
    text.size = (size_t)(vectors_signed(buffers[1], width, at + 1) - start);
    text.data = (const char *)buffers[2] + start;
    return text;
}

// The elements of a child that belong to an element.
static inline void vectors_items(struct vectors_array of, int64_t at, int64_t *start, int64_t *count) {
    const char *format = of.schema->format;
    const size_t width = format[1] == 'L' || strcmp(format, "+vL") == 0 ? 8 : 4;
    if (format[1] == 'w') {
        *count = atoi(format + 3);
        *start = at * *count;
    } else {
        *start = vectors_signed(of.array->buffers[1], width, at);
        *count = format[1] == 'v' ? vectors_signed(of.array->buffers[2], width, at)
                                  : vectors_signed(of.array->buffers[1], width, at + 1) - *start;
    }
}

static inline int64_t vectors_run(struct vectors_array of, int64_t at) {
    const struct vectors_array ends = vectors_child(of, 0);
    int64_t run = 0;
    while (vectors_signed(ends.array->buffers[1], vectors_width(ends.schema->format), run + ends.array->offset) <= at) {
        run++;
    }
    return run;
}

static inline bool vectors_is_same_type(const struct ArrowSchema *one, const struct ArrowSchema *other) {
    if (strcmp(one->format, other->format) != 0 || one->n_children != other->n_children ||
        (one->dictionary == NULL) != (other->dictionary == NULL)) {
        return false;
    }
    for (int64_t at = 0; at < one->n_children; at++) {
        if (strcmp(one->children[at]->name, other->children[at]->name) != 0 ||
            !vectors_is_same_type(one->children[at], other->children[at])) {
            return false;
        }
    }
    return one->dictionary == NULL || vectors_is_same_type(one->dictionary, other->dictionary);
}

static inline bool vectors_are_same_elements(struct vectors_array one, int64_t at, struct vectors_array other,
                                             int64_t there, int64_t count);

// Compares two elements of arrays of one type.
static inline bool vectors_is_same_element(struct vectors_array one, int64_t at, struct vectors_array other,
                                           int64_t there) {
    const char *format = one.schema->format;
    at += one.array->offset;
    there += other.array->offset;
    if (vectors_is_null(one, at) || vectors_is_null(other, there)) {
        return vectors_is_null(one, at) && vectors_is_null(other, there);
    }
    const size_t width = vectors_width(format);
    if (one.schema->dictionary != NULL) {
        const struct vectors_array values = {one.array->dictionary, one.schema->dictionary};
        const struct vectors_array others = {other.array->dictionary, other.schema->dictionary};
        return vectors_is_same_element(values, vectors_signed(one.array->buffers[1], width, at), others,
                                       vectors_signed(other.array->buffers[1], width, there));
    }
    if (width > 0) {
        return memcmp((const char *)one.array->buffers[1] + (size_t)at * width,
                      (const char *)other.array->buffers[1] + (size_t)there * width, width) == 0;
    }
    if (format[0] == 'b') {
        return vectors_bit(one.array->buffers[1], at) == vectors_bit(other.array->buffers[1], there);
    }
    if (format[0] == 'n') {
        return true;
    }
    if (format[0] != '+') {
        const struct nervure_bytes text = vectors_text(one, at), expected = vectors_text(other, there);
        return text.size == expected.size && (text.size == 0 || memcmp(text.data, expected.data, text.size) == 0);
    }
    if (format[1] == 's') {
        for (int64_t field = 0; field < one.schema->n_children; field++) {
            if (!vectors_is_same_element(vectors_child(one, field), at, vectors_child(other, field), there)) {
                return false;
            }
        }
        return true;
    }
    if (format[1] == 'u') {
        const int64_t id = vectors_signed(one.array->buffers[0], 1, at);
        // The children of the vectors' unions have their numbers as ids.
        const bool is_dense = format[2] == 'd';
        return id == vectors_signed(other.array->buffers[0], 1, there) && id < one.schema->n_children &&
               vectors_is_same_element(
                   vectors_child(one, id), is_dense ? vectors_signed(one.array->buffers[1], 4, at) : at,
                   vectors_child(other, id), is_dense ? vectors_signed(other.array->buffers[1], 4, there) : there);
    }
    if (format[1] == 'r') {
        return vectors_is_same_element(vectors_child(one, 1), vectors_run(one, at), vectors_child(other, 1),
                                       vectors_run(other, there));
    }
    int64_t start, items, other_start, other_items;
    vectors_items(one, at, &start, &items);
    vectors_items(other, there, &other_start, &other_items);
    return items == other_items && vectors_are_same_elements(vectors_child(one, 0), start, vectors_child(other, 0),
                                                             other_start, items);
}

static inline bool vectors_are_same_elements(struct vectors_array one, int64_t at, struct vectors_array other,
                                             int64_t there, int64_t count) {
    for (int64_t element = 0; element < count; element++) {
        if (!vectors_is_same_element(one, at + element, other, there + element)) {
            return false;
        }
    }
    return true;
}

static inline bool vectors_is_same_array(struct vectors_array found, struct vectors_array expected) {
    return found.array->length == expected.array->length && vectors_is_same_type(found.schema, expected.schema) &&
           vectors_are_same_elements(found, 0, expected, 0, found.array->length);
}

// Whether a received value equals the vector's.
static inline bool vectors_is_same(const nervure_sample *sample, const struct vector *vector) {
    struct nervure_value found;
    const struct nervure_value *expected = &vector->value;
    if (nervure_sample_value(sample, &found) != NERVURE_STATUS_OK || found.kind != expected->kind) {
        return false;
    }
    switch (found.kind) {
    case NERVURE_KIND_BYTES:
    case NERVURE_KIND_TEXT:
        return found.as.bytes.size == expected->as.bytes.size &&
               (found.as.bytes.size == 0 ||
                memcmp(found.as.bytes.data, expected->as.bytes.data, found.as.bytes.size) == 0);
    case NERVURE_KIND_BOOL: return found.as.boolean == expected->as.boolean;
    case NERVURE_KIND_INTEGER: return found.as.integer == expected->as.integer;
    case NERVURE_KIND_UNSIGNED: return found.as.unsigned_integer == expected->as.unsigned_integer;
    case NERVURE_KIND_FLOAT: return memcmp(&found.as.number, &expected->as.number, sizeof(double)) == 0;
    case NERVURE_KIND_TENSOR: return vectors_is_same_tensor(&found.as.tensor, vector);
    default: break;
    }
    struct ArrowArray array;
    struct ArrowSchema schema;
    if (nervure_sample_arrow(sample, &array, &schema) != NERVURE_STATUS_OK) {
        return false;
    }
    const struct vectors_array here = {&array, &schema};
    const struct vectors_array there = {expected->as.arrow.array, expected->as.arrow.schema};
    const bool is_same = vectors_is_same_array(here, there);
    array.release(&array);
    schema.release(&schema);
    return is_same;
}

// Whether a damaged sample is accepted as a value; if so, reads all of it.
static inline bool vectors_is_read(const nervure_sample *sample) {
    struct nervure_value value;
    struct nervure_bytes bytes;
    struct ArrowArray array;
    struct ArrowSchema schema;
    (void)nervure_sample_bytes(sample, &bytes);
    if (nervure_sample_value(sample, &value) != NERVURE_STATUS_OK ||
        nervure_sample_arrow(sample, &array, &schema) != NERVURE_STATUS_OK) {
        return false;
    }
    const struct vectors_array all = {&array, &schema};
    (void)vectors_is_same_array(all, all);
    array.release(&array);
    schema.release(&schema);
    return true;
}

#endif // VECTORS_H
