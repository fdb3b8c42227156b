// Reads records of Rust by paths, and builds records for C++, as `tests/test_records.py` expects them.
#include <nervure.h>
#include <stdio.h>
#include <stdlib.h>

static void check(nervure_status status) {
    if (status != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        exit(1);
    }
}

static void refused(nervure_status expected, nervure_status status) {
    if (status != expected) {
        fprintf(stderr, "expected %d, got %d: %s\n", expected, status, nervure_error());
        exit(1);
    }
    printf("refused: %s\n", nervure_error());
}

static void read_imu(const nervure_sample *sample) {
    nervure_record *record;
    check(nervure_record_open(sample, &record));
    double number;
    check(nervure_record_number(record, "angular_velocity.z", &number));
    printf("z %g\n", number);
    check(nervure_record_number(record, "orientation_covariance[8]", &number));
    printf("covariance %g\n", number);
    refused(NERVURE_STATUS_NONE, nervure_record_number(record, "angular_velocity_covariance[0]", &number));
    refused(NERVURE_STATUS_NONE, nervure_record_number(record, "angular_velocity.q", &number));
    refused(NERVURE_STATUS_NONE, nervure_record_number(record, "angular_velocty.x", &number));
    refused(NERVURE_STATUS_KIND, nervure_record_number(record, "angular_velocity", &number));
    int64_t integer;
    refused(NERVURE_STATUS_KIND, nervure_record_integer(record, "angular_velocity.z", &integer));
    refused(NERVURE_STATUS_ARGUMENT, nervure_record_integer(record, "angular_velocity..z", &integer));
    nervure_record_free(record);
}

static void read_frame(const nervure_sample *sample) {
    nervure_record *record;
    check(nervure_record_open(sample, &record));
    nervure_bytes text;
    check(nervure_record_text(record, "name", &text));
    printf("name %.*s\n", (int)text.size, (const char *)text.data);
    nervure_value value;
    check(nervure_record_get(record, "count", &value));
    printf("count %d %llu\n", value.kind == NERVURE_KIND_UNSIGNED, (unsigned long long)value.as.unsigned_integer);
    bool boolean = false;
    check(nervure_record_bool(record, "is_valid", &boolean));
    printf("valid %d\n", boolean);
    double number;
    refused(NERVURE_STATUS_NONE, nervure_record_number(record, "score", &number));
    size_t count;
    check(nervure_record_count(record, "points", &count));
    check(nervure_record_number(record, "points[1].x", &number));
    check(nervure_record_text(record, "points[1].labels[1]", &text));
    printf("points %zu %g %.*s\n", count, number, (int)text.size, (const char *)text.data);
    refused(NERVURE_STATUS_NONE, nervure_record_number(record, "points[2].x", &number));
    refused(NERVURE_STATUS_KIND, nervure_record_number(record, "points.x", &number));
    nervure_tensor tensor;
    check(nervure_record_tensor(record, "ranges", &tensor));
    printf("ranges %zu %g\n", tensor.shape[0], ((const double *)tensor.data)[2]);
    check(nervure_record_tensor(record, "image", &tensor));
    printf("image %zu x %zu x %zu %d\n", tensor.shape[0], tensor.shape[1], tensor.shape[2],
           ((const uint8_t *)tensor.data)[11]);
    // In C order: row 0, column 1.
    check(nervure_record_number(record, "transposed[1]", &number));
    printf("transposed %g\n", number);
    refused(NERVURE_STATUS_KIND, nervure_record_tensor(record, "tags", &tensor));
    refused(NERVURE_STATUS_KIND, nervure_record_text(record, "is_valid", &text));
    nervure_record_free(record);
}

static void send_detections(const nervure_output *output) {
    nervure_builder *builder;
    check(nervure_builder_new(output, &builder));
    check(nervure_builder_set_text(builder, "detections[0].results[0].hypothesis.class_id", "car"));
    check(nervure_builder_set_number(builder, "detections[0].results[0].hypothesis.score", 0.75));
    check(nervure_builder_set_integer(builder, "detections[0].bbox.size_x", 3));
    check(nervure_builder_set_text(builder, "detections[1].id", "second"));
    refused(NERVURE_STATUS_KIND, nervure_builder_set_text(builder, "detections[3].id", "fourth"));
    // Appends no third item.
    refused(NERVURE_STATUS_KIND, nervure_builder_set_text(builder, "detections[2].results[1].hypothesis.class_id", "bus"));
    refused(NERVURE_STATUS_KIND, nervure_builder_set_text(builder, "detection[0].id", "first"));
    refused(NERVURE_STATUS_KIND, nervure_builder_set_text(builder, "detections[0].bbox.size_x", "wide"));
    refused(NERVURE_STATUS_KIND, nervure_builder_set_number(builder, "detections.x", 1));
    nervure_value value = nervure_from_builder(builder);
    check(nervure_send(output, &value, NULL));
    check(nervure_builder_clear(builder, "detections"));
    check(nervure_send(output, &value, NULL));
    nervure_builder_free(builder);
}

static void send_odometry(const nervure_output *output) {
    nervure_builder *builder;
    check(nervure_builder_new(output, &builder));
    check(nervure_builder_set_number(builder, "twist.twist.linear.x", 1.5));
    double covariance[36];
    for (int at = 0; at < 36; at++) {
        covariance[at] = at;
    }
    const size_t shape[] = {6, 6};
    nervure_value value = nervure_from_tensor(NERVURE_DTYPE_F64, 2, shape, covariance);
    check(nervure_builder_set(builder, "pose.covariance", &value));
    check(nervure_builder_set_number(builder, "twist.covariance[35]", 7));
    refused(NERVURE_STATUS_KIND, nervure_builder_set_number(builder, "twist.covariance[36]", 7));
    value = nervure_from_builder(builder);
    check(nervure_send(output, &value, NULL));
    // A tensor of another length is found when it is sent.
    const size_t short_shape[] = {35};
    value = nervure_from_tensor(NERVURE_DTYPE_F64, 1, short_shape, covariance);
    check(nervure_builder_set(builder, "pose.covariance", &value));
    value = nervure_from_builder(builder);
    refused(NERVURE_STATUS_KIND, nervure_send(output, &value, NULL));
    nervure_builder_free(builder);
}

// A struct of the program, without generated code.
typedef struct vector3 {
    double x, y, z;
} vector3;

typedef struct twist {
    vector3 linear, angular;
} twist;

static const nervure_layout number = {.kind = NERVURE_LAYOUT_KIND_NUMBER, .dtype = NERVURE_DTYPE_F64, .size = sizeof(double)};
static const nervure_field of_vector3[] = {
    {"x", &number, offsetof(vector3, x)}, {"y", &number, offsetof(vector3, y)}, {"z", &number, offsetof(vector3, z)}};
static const nervure_layout vector3_layout = {
    .kind = NERVURE_LAYOUT_KIND_RECORD, .size = sizeof(vector3), .name = "vector3", .count = 3, .fields = of_vector3};
static const nervure_field of_twist[] = {{"linear", &vector3_layout, offsetof(twist, linear)},
                                         {"angular", &vector3_layout, offsetof(twist, angular)}};
static const nervure_layout twist_layout = {
    .kind = NERVURE_LAYOUT_KIND_RECORD, .size = sizeof(twist), .name = "twist", .count = 2, .fields = of_twist};

static void send_twist(const nervure_output *output) {
    const twist slow = {{0.5, 0, 0}, {0, 0, -1}};
    const nervure_value value = nervure_from_struct(&twist_layout, &slow);
    check(nervure_send(output, &value, NULL));
}

static void send_untyped(const nervure_output *output) {
    nervure_builder *builder;
    check(nervure_builder_new(NULL, &builder));
    check(nervure_builder_set_text(builder, "robots[0].name", "anna"));
    check(nervure_builder_set_bool(builder, "robots[0].moves", true));
    check(nervure_builder_set_text(builder, "robots[1].name", "bert"));
    const uint8_t bytes[] = {7, 8};
    nervure_value value = nervure_from_bytes(bytes, sizeof bytes);
    check(nervure_builder_set(builder, "key", &value));
    refused(NERVURE_STATUS_KIND, nervure_builder_set_text(builder, "robots.name", "carl"));
    value = nervure_from_builder(builder);
    check(nervure_send(output, &value, NULL));
    nervure_builder_free(builder);
}

int main(void) {
    nervure_node *node;
    check(nervure_connect(&node));
    const nervure_output *detections, *odometry, *velocity, *untyped, *image;
    check(nervure_find_output(node, "detections", &detections));
    check(nervure_find_output(node, "odometry", &odometry));
    check(nervure_find_output(node, "twist", &velocity));
    check(nervure_find_output(node, "untyped", &untyped));
    check(nervure_find_output(node, "image", &image));
    nervure_event event;
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind == NERVURE_EVENT_KIND_INPUT && strcmp(event.id, "imu") == 0) {
            read_imu(event.sample);
        } else if (event.kind == NERVURE_EVENT_KIND_INPUT) {
            read_frame(event.sample);
        }
    }
    send_detections(detections);
    send_odometry(odometry);
    send_twist(velocity);
    send_untyped(untyped);
    nervure_builder *builder;
    refused(NERVURE_STATUS_KIND, nervure_builder_new(image, &builder));
    nervure_disconnect(node);
    return 0;
}
