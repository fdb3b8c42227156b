// Nervure nodes in C. Generated from the crate `nervure-c`: do not edit.
//
//     nervure_node *node;
//     if (nervure_connect(&node) != NERVURE_STATUS_OK) {
//         fprintf(stderr, "%s\n", nervure_error());
//         return 1;
//     }
//     nervure_event event;
//     while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
//         // ..
//     }
//     nervure_disconnect(node);
//
// Functions return a status: 0 is success, a negative one a failure, whose message `nervure_error` returns. No function
// throws. A NULL for a required pointer is a failure, and frees accept it. Names are UTF-8 with a NUL at the end.

#ifndef NERVURE_H
#define NERVURE_H


#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The Arrow C data interface, as its specification defines it.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif // ARROW_C_DATA_INTERFACE

// Result of a function. `nervure_error` returns the message of a failure.
typedef enum nervure_status {
    // Success.
    NERVURE_STATUS_OK = 0,
    // Nothing happened before the timeout.
    NERVURE_STATUS_TIMEOUT = 1,
    // The node has ended: there are no more events.
    NERVURE_STATUS_END = 2,
    // There is no such thing here, for example no coordinate frame.
    NERVURE_STATUS_NONE = 3,
    // An argument is not valid: a null pointer, text that is not UTF-8, a shape that does not fit its data.
    NERVURE_STATUS_ARGUMENT = -1,
    // The dataflow file declares no such name for the node.
    NERVURE_STATUS_UNKNOWN_NAME = -2,
    // The node cannot connect to its dataflow.
    NERVURE_STATUS_CONNECT = -3,
    // The dataflow stops.
    NERVURE_STATUS_STOPPED = -4,
    // The node's shared memory is used up, or the sample is larger than all of it.
    NERVURE_STATUS_MEMORY = -5,
    // The sample is of another kind, or damaged.
    NERVURE_STATUS_KIND = -6,
    // The service did not answer, or reported a failure.
    NERVURE_STATUS_CALL = -7,
    // A system call failed.
    NERVURE_STATUS_SYSTEM = -8,
    // The node belongs to the process that this one was forked from.
    NERVURE_STATUS_FORKED = -9,
    // A defect of Nervure. Please report it with its message.
    NERVURE_STATUS_DEFECT = -10,
    // There is no transform between two frames at that time.
    NERVURE_STATUS_TRANSFORM = -11,
} nervure_status;

// Kind of a value: which member of the union in `nervure_value` it has.
typedef enum nervure_kind {
    // `bytes`: sender and receiver agree on their meaning.
    NERVURE_KIND_BYTES = 0,
    // `bytes`: a text in UTF-8, without a NUL at its end.
    NERVURE_KIND_TEXT = 1,
    // `boolean`.
    NERVURE_KIND_BOOL = 2,
    // `integer`.
    NERVURE_KIND_INTEGER = 3,
    // `unsigned_integer`: an integer above INT64_MAX.
    NERVURE_KIND_UNSIGNED = 4,
    // `number`.
    NERVURE_KIND_FLOAT = 5,
    // `tensor`: an image, a point cloud, a matrix.
    NERVURE_KIND_TENSOR = 6,
    // `arrow`: an array of the Arrow C data interface. Records are received as this kind: see `nervure_record_open`.
    NERVURE_KIND_ARROW = 7,
    // `structure`: a struct of the program, which is sent as a record.
    NERVURE_KIND_STRUCT = 8,
    // `builder`: a record.
    NERVURE_KIND_BUILDER = 9,
} nervure_kind;

// Type of a tensor's elements, little-endian.
typedef enum nervure_dtype {
    NERVURE_DTYPE_BOOL = 0,
    NERVURE_DTYPE_I8 = 1,
    NERVURE_DTYPE_I16 = 2,
    NERVURE_DTYPE_I32 = 3,
    NERVURE_DTYPE_I64 = 4,
    NERVURE_DTYPE_U8 = 5,
    NERVURE_DTYPE_U16 = 6,
    NERVURE_DTYPE_U32 = 7,
    NERVURE_DTYPE_U64 = 8,
    NERVURE_DTYPE_F16 = 9,
    NERVURE_DTYPE_BF16 = 10,
    NERVURE_DTYPE_F32 = 11,
    NERVURE_DTYPE_F64 = 12,
    // Complex number of two 32-bit floats.
    NERVURE_DTYPE_C64 = 13,
    // Complex number of two 64-bit floats.
    NERVURE_DTYPE_C128 = 14,
    // A type of another language, for example a structured type of NumPy. It can be received, and not be sent.
    NERVURE_DTYPE_CUSTOM = 255,
} nervure_dtype;

// Kind of a type in memory.
typedef enum nervure_layout_kind {
    // A number or truth value of type `dtype`, of at most 64 bits.
    NERVURE_LAYOUT_KIND_NUMBER = 0,
    // A text: `items` are its bytes.
    NERVURE_LAYOUT_KIND_TEXT = 1,
    // A struct with `count` fields.
    NERVURE_LAYOUT_KIND_RECORD = 2,
    // `count` values of type `item`, one after the other.
    NERVURE_LAYOUT_KIND_ARRAY = 3,
    // Any number of values of type `item`.
    NERVURE_LAYOUT_KIND_LIST = 4,
    // A value of type `item`, or none: `items` are one or none.
    NERVURE_LAYOUT_KIND_OPTIONAL = 5,
} nervure_layout_kind;

// Kind of an event. Later versions may add kinds: ignore unknown ones.
typedef enum nervure_event_kind {
    // A sample arrived: `id` is the input, `sample` the sample.
    NERVURE_EVENT_KIND_INPUT = 0,
    // A timer is due: `id` is the input, `due` the time, `count` the ticks that were merged into this one.
    NERVURE_EVENT_KIND_TICK = 1,
    // The producer of the input `id` has ended, and its last sample was delivered.
    NERVURE_EVENT_KIND_INPUT_CLOSED = 2,
    // The input `id` has had no sample for as long as its `expect_every`: `elapsed` is the time since the newest, `count`
    // the number of such events since then.
    NERVURE_EVENT_KIND_STALE = 3,
    // The node received this event later than its `loop` allows: `id` is the input whose event took too long, `elapsed`
    // the time beyond the deadline, `count` the number of missed deadlines.
    NERVURE_EVENT_KIND_DEADLINE_MISSED = 4,
    // A request to the service `id`, with the value `sample`: answer it with `nervure_reply`. `text` is the calling node.
    NERVURE_EVENT_KIND_REQUEST = 5,
    // The parameter `id` was changed to `value`.
    NERVURE_EVENT_KIND_PARAM = 6,
    // The node `id`, which feeds inputs of this one, failed: `text` is the reason. `restarts` is set if it starts again.
    NERVURE_EVENT_KIND_NODE_FAILED = 7,
    // The node `id`, which had failed, runs again.
    NERVURE_EVENT_KIND_NODE_RESTARTED = 8,
    // The node has to end: `text` is the reason. It is the last event.
    NERVURE_EVENT_KIND_STOP = 9,
    // An event without a kind in this version: `text` is its kind, `id` the node that it concerns.
    NERVURE_EVENT_KIND_OTHER = 10,
    // The dataflow is paused: its clock stands still, no timer ticks until `NERVURE_EVENT_KIND_RESUME`, and sending waits
    // until then in nodes without inputs.
    NERVURE_EVENT_KIND_PAUSE = 11,
    // The dataflow is resumed.
    NERVURE_EVENT_KIND_RESUME = 12,
    // Samples of the inputs of `sync` that belong together: `set` has them.
    NERVURE_EVENT_KIND_SYNC = 13,
} nervure_event_kind;

// A record that is built field by field, by paths as of `nervure_record`. It can be sent many times, and changed between.
typedef struct nervure_builder nervure_builder;

// Shared memory for a value, which is filled in place, and then sent without a copy.
typedef struct nervure_loan nervure_loan;

// Named values that are sent along with a value: labels and parameters, not data. At most 256, and 64 KiB.
typedef struct nervure_metadata nervure_metadata;

// A value of a record.
typedef struct nervure_node nervure_node;

// An output of a node. It belongs to the node.
typedef struct nervure_output nervure_output;

// A received record: a dict, dataclass or struct of another language, or a list of them. It keeps its sample's memory
// until it is freed.
//
// Functions name its values by paths: `pose.position.x`, `poses[3].position`, `covariance[8]`; the empty path is the
// whole record. They return `NERVURE_STATUS_NONE` if there is no value: it is null, the record has no such field or the
// list no such item; and `NERVURE_STATUS_KIND` if it is of another type. One thread at a time reads a record.
typedef struct nervure_record nervure_record;

// A request of another node. If it is freed without an answer, the caller is notified.
typedef struct nervure_request nervure_request;

// A received sample: a view of its producer's memory, which the producer gets back when the sample is freed. Keep few
// samples; copy data that you need for longer.
typedef struct nervure_sample nervure_sample;

// Samples of several inputs that belong together: of `NERVURE_EVENT_KIND_SYNC`.
typedef struct nervure_set nervure_set;

// Bytes, or a text.
typedef struct nervure_bytes {
    // The first byte. It may be NULL if `size` is 0.
    const void *data;
    // Number of bytes.
    size_t size;
} nervure_bytes;

// Elements of one type in any number of dimensions.
typedef struct nervure_tensor {
    // The first element.
    const void *data;
    // Type of the elements.
    enum nervure_dtype dtype;
    // Size of an element in bytes. Set in received values, ignored in sent ones.
    size_t item_size;
    // Number of dimensions; at most 64.
    size_t dimensions;
    // Length of each dimension.
    const size_t *shape;
    // Distance between neighbours along each dimension, in bytes; NULL for C order, in which the last dimension varies
    // fastest, without gaps.
    const size_t *strides;
} nervure_tensor;

// Structs of the Arrow C data interface: https://arrow.apache.org/docs/format/CDataInterface.html. They are moved to
// the function that sends them, also if it fails.
typedef struct nervure_arrow {
    // The array.
    struct ArrowArray *array;
    // Its type.
    struct ArrowSchema *schema;
} nervure_arrow;

// A field of a struct.
typedef struct nervure_field {
    // Its name in records.
    const char *name;
    // Its type.
    const struct nervure_layout *layout;
    // Its distance from the beginning of the struct, in bytes.
    size_t offset;
} nervure_field;

// A type in memory. It lives as long as the program, and is not changed. `nervure.hpp` makes those of generated structs.
typedef struct nervure_layout {
    // Kind of the type.
    enum nervure_layout_kind kind;
    // Type of the number.
    enum nervure_dtype dtype;
    // Size in bytes, with the gap before the next one in an array.
    size_t size;
    // Name of the struct, for messages.
    const char *name;
    // Number of fields or items.
    size_t count;
    // The fields of the struct, in the order in which they are sent.
    const struct nervure_field *fields;
    // Type of the items.
    const struct nervure_layout *item;
    // Returns the first item of a text, list or optional value, and their number.
    const void *(*items)(const void *place, size_t *count);
    // Sets the number of items, and returns the first; NULL if the memory is exhausted.
    void *(*resize)(void *place, size_t count);
} nervure_layout;

// A struct of the program.
typedef struct nervure_structure {
    // Its type.
    const struct nervure_layout *layout;
    // The struct.
    const void *data;
} nervure_structure;

// The member that `nervure_value.kind` names.
typedef union nervure_content {
    // Bytes, or a text.
    struct nervure_bytes bytes;
    // A truth value.
    bool boolean;
    // An integer.
    int64_t integer;
    // An integer above INT64_MAX.
    uint64_t unsigned_integer;
    // A floating-point number.
    double number;
    // A tensor.
    struct nervure_tensor tensor;
    // An Arrow array.
    struct nervure_arrow arrow;
    // A struct of the program.
    struct nervure_structure structure;
    // A record.
    const struct nervure_builder *builder;
} nervure_content;

// A value to send, or a received one. It points to its data, and does not own them.
typedef struct nervure_value {
    // Which member of `as` it has.
    enum nervure_kind kind;
    // The value.
    union nervure_content as;
} nervure_value;

// An event. Its pointers are valid until the next call of `nervure_next` with the node.
typedef struct nervure_event {
    // What happened.
    enum nervure_event_kind kind;
    // Name of the input, service, parameter or node; never NULL.
    const char *id;
    // The reason, or another text; never NULL.
    const char *text;
    // The sample of `NERVURE_EVENT_KIND_INPUT` and `NERVURE_EVENT_KIND_REQUEST`, else NULL.
    const struct nervure_sample *sample;
    // The request of `NERVURE_EVENT_KIND_REQUEST`, else NULL.
    const struct nervure_request *request;
    // The new value of `NERVURE_EVENT_KIND_PARAM`, as of `nervure_param`.
    struct nervure_value value;
    // When a tick was due, in nanoseconds since the Unix epoch on the dataflow's clock.
    int64_t due;
    // A duration in nanoseconds.
    uint64_t elapsed;
    // A number of events.
    uint64_t count;
    // Whether a failed node is started again.
    bool restarts;
    // The samples of `NERVURE_EVENT_KIND_SYNC`, else NULL.
    const struct nervure_set *set;
} nervure_event;

// Times and numbers of a sample.
typedef struct nervure_info {
    // Time at which the value was true, in nanoseconds since the Unix epoch. The source sets it.
    int64_t stamp;
    // Time of publication, in nanoseconds since the Unix epoch.
    int64_t published;
    // Time from publication until this node took the sample, in nanoseconds.
    uint64_t latency;
    // Sequence number within the output and incarnation, from 0; UINT64_MAX if the sample has none.
    uint64_t sequence;
    // Number of restarts of its producer.
    uint32_t incarnation;
} nervure_info;

// Time, frame, trace and metadata of a sent value. Members that are 0 or NULL are not sent.
typedef struct nervure_envelope {
    // Time at which the value was true, in nanoseconds since the Unix epoch; 0 for the time of publication.
    int64_t stamp;
    // The sample that the value was computed from: gives stamp, frame and trace, where they are not set here.
    const struct nervure_sample *like;
    // Named values.
    const struct nervure_metadata *metadata;
    // Name of the coordinate frame.
    const char *frame;
} nervure_envelope;

// The pose of a source frame in a target frame.
typedef struct nervure_transform {
    // Position of the source's origin in the target frame, in metres: x, y, z.
    double translation[3];
    // Orientation of the source in the target frame, as a unit quaternion: x, y, z, w.
    double rotation[4];
    // The time that it holds at, in nanoseconds since the Unix epoch; 0 for any time: every transform between the frames
    // is static.
    int64_t stamp;
} nervure_transform;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version.
const char *nervure_version(void);

// Makes a record for an output. If the type of the output is a standard one, the record has the fields of that type with
// their defaults, optional ones without a value, and takes no others. `output` may be NULL, for a record of any fields, such
// as a request. Free it with `nervure_builder_free`.
enum nervure_status nervure_builder_new(const struct nervure_output *output,
                                        struct nervure_builder **builder);

// Frees a record.
void nervure_builder_free(struct nervure_builder *builder);

// Sets the value at a path: a number, a text, bytes, a tensor or another record, which are copied. An index that is the number
// of items of its list appends an item.
enum nervure_status nervure_builder_set(struct nervure_builder *builder,
                                        const char *path,
                                        const struct nervure_value *value);

// Removes the value at a path: an optional field becomes null, a list empty.
enum nervure_status nervure_builder_clear(struct nervure_builder *builder, const char *path);

// Returns the size of an element in bytes; 0 for `NERVURE_DTYPE_CUSTOM`, whose size is in the tensor.
size_t nervure_dtype_size(unsigned int dtype);

// Returns the number of samples of an input in a set: 1 of a matched input, any number of a collected one, 0 for another
// name, and if a pointer is NULL.
size_t nervure_set_count(const struct nervure_set *set,
                         const char *input);

// Returns the sample of an input in a set, of a collected input that with this index, counted from 0; NULL if there is none.
// It is valid until the next call of `nervure_next` with the node; `nervure_sample_keep` keeps it.
const struct nervure_sample *nervure_set_sample(const struct nervure_set *set,
                                                const char *input,
                                                size_t index);

// Answers a request, once. It is no error if the caller has ended.
enum nervure_status nervure_reply(const struct nervure_request *request, const struct nervure_value *value);

// Reports to the caller that the request failed, and why.
enum nervure_status nervure_fail(const struct nervure_request *request, const char *reason);

// Returns a request that outlives its event, to be answered later; it holds no memory of its caller. Free it with
// `nervure_request_free`. NULL if `request` is.
struct nervure_request *nervure_request_keep(const struct nervure_request *request);

// Frees a request that `nervure_request_keep` returned. Without an answer, the caller is notified.
void nervure_request_free(struct nervure_request *request);

// Opens the record in a sample. Free it with `nervure_record_free`. To read all fields into a struct,
// `nervure_sample_read` needs no record.
enum nervure_status nervure_record_open(const struct nervure_sample *sample, struct nervure_record **record);

// Frees a record.
void nervure_record_free(struct nervure_record *record);

// Reads the value at a path in place: a number, a text, bytes, or a tensor, also of a list of numbers. It is valid until the
// record is freed. Lists and records have no value: read their items and fields.
enum nervure_status nervure_record_get(struct nervure_record *record,
                                       const char *path,
                                       struct nervure_value *value);

// Reads the text at a path in place: its bytes, without a NUL at the end. They are valid until the record is freed.
enum nervure_status nervure_record_text(struct nervure_record *record,
                                        const char *path,
                                        struct nervure_bytes *text);

// Reads the bytes at a path in place. They are valid until the record is freed.
enum nervure_status nervure_record_bytes(struct nervure_record *record,
                                         const char *path,
                                         struct nervure_bytes *bytes);

// Reads the tensor, or the list of numbers, at a path in place. It is valid until the record is freed.
enum nervure_status nervure_record_tensor(struct nervure_record *record,
                                          const char *path,
                                          struct nervure_tensor *tensor);

// Reads the number at a path. It may also be an integer.
enum nervure_status nervure_record_number(const struct nervure_record *record,
                                          const char *path,
                                          double *number);

// Reads the integer at a path.
enum nervure_status nervure_record_integer(const struct nervure_record *record,
                                           const char *path,
                                           int64_t *integer);

// Reads the truth value at a path.
enum nervure_status nervure_record_bool(const struct nervure_record *record, const char *path, bool *boolean);

// Counts the items of the list at a path, or the elements of a tensor.
enum nervure_status nervure_record_count(const struct nervure_record *record,
                                         const char *path,
                                         size_t *count);

// Reads the value at a path into a value of a type of the program, which must be initialized. Integers become numbers of
// smaller types if they fit; fields that the type does not have are ignored. After a failure it is initialized, and may be
// read in part.
enum nervure_status nervure_record_read(const struct nervure_record *record,
                                        const char *path,
                                        const struct nervure_layout *layout,
                                        void *value);

// Reads a sample, which is one record, into a value of a type of the program: as `nervure_record_read` with the empty path,
// but a schema is compared with the type once only, and no memory is allocated for fields of fixed size.
enum nervure_status nervure_sample_read(const struct nervure_sample *sample,
                                        const struct nervure_layout *layout,
                                        void *value);

// Makes empty metadata. Free it with `nervure_metadata_free`.
struct nervure_metadata *nervure_metadata_new(void);

// Frees metadata.
void nervure_metadata_free(struct nervure_metadata *metadata);

// Sets an entry: a boolean, an integer, a number, a text, bytes, or a tensor of one dimension of `NERVURE_DTYPE_I64` or
// `NERVURE_DTYPE_F64`. The value is copied.
enum nervure_status nervure_metadata_set(struct nervure_metadata *metadata,
                                         const char *key,
                                         const struct nervure_value *value);

// Returns the number of entries.
size_t nervure_metadata_count(const struct nervure_metadata *metadata);

// Reads the entry with a number, in order of insertion. Name and value are valid as long as the metadata is not changed or
// freed. `key` may be NULL.
enum nervure_status nervure_metadata_at(const struct nervure_metadata *metadata,
                                        size_t at,
                                        const char **key,
                                        struct nervure_value *value);

// Reads the entry with a name: `NERVURE_STATUS_NONE` if there is none. The value is valid as long as the metadata is not
// changed or freed.
enum nervure_status nervure_metadata_get(const struct nervure_metadata *metadata,
                                         const char *key,
                                         struct nervure_value *value);

// Connects to the keeper that started this program. For a node without inputs from other nodes this returns when the whole
// dataflow is ready, so that no consumer misses its first samples. A process has one node. Free it with
// `nervure_disconnect`.
enum nervure_status nervure_connect(struct nervure_node **node);

// Connects a component over the control socket that its host was given, which is the node's from now on.
// `NERVURE_COMPONENT` calls it.
enum nervure_status nervure_component_connect(int32_t control, struct nervure_node **node);

// Joins a running dataflow as its node with that id, which has `path: dynamic` in the file. `dataflow` may be NULL: then it
// is the one that `NERVURE_DATAFLOW` names, or the only one that runs. In a program that a keeper started this is
// `nervure_connect`.
enum nervure_status nervure_join(const char *dataflow,
                                 const char *id,
                                 struct nervure_node **node);

// Ends the node: its consumers get `NERVURE_EVENT_INPUT_CLOSED` after the queued samples. Frees its outputs and its
// event, but no samples.
void nervure_disconnect(struct nervure_node *node);

// Returns the node's id in the dataflow file. It is valid as long as the node is.
const char *nervure_node_id(const struct nervure_node *node);

// Returns the dataflow's name. It is valid as long as the node is.
const char *nervure_node_dataflow(const struct nervure_node *node);

// Returns the number of restarts of the node: 0 at the first start.
uint32_t nervure_node_incarnation(const struct nervure_node *node);

// Returns the dataflow's clock, in nanoseconds since the Unix epoch. It stops while the dataflow is paused.
int64_t nervure_now(const struct nervure_node *node);

// Returns whether the dataflow is paused, for loops that receive nothing.
bool nervure_is_paused(const struct nervure_node *node);

// Returns whether the node has to stop, for loops that receive nothing.
bool nervure_is_stopping(const struct nervure_node *node);

// Reports that this node, declared with `ready: manual`, is ready. The dataflow's sources start when all nodes are.
enum nervure_status nervure_ready(const struct nervure_node *node);

// Finds an output. It is valid as long as the node is; keep it, as the search takes time.
enum nervure_status nervure_find_output(const struct nervure_node *node,
                                        const char *name,
                                        const struct nervure_output **output);

// Reads the current value of a parameter: a boolean, an integer, a number, or a text; a list is its text in JSON. A text is
// valid until the next call of this function, or of `nervure_next`, with the node. Only the thread that receives may call
// it.
enum nervure_status nervure_param(struct nervure_node *node,
                                  const char *name,
                                  struct nervure_value *value);

// Waits for the next event: for `timeout` nanoseconds, without end if it is negative, not at all if it is 0. Returns
// `NERVURE_STATUS_TIMEOUT` if there is none, and `NERVURE_STATUS_END` after `NERVURE_EVENT_KIND_STOP`. The event before is
// freed. An event with a sample or a tick allocates no memory.
enum nervure_status nervure_next(struct nervure_node *node,
                                 int64_t timeout,
                                 struct nervure_event *event);

// Returns the newest sample of an input without waiting: from its queue, or else the newest that was received before;
// `NERVURE_STATUS_NONE` if there is none. Older samples of the queue are not delivered as events. Free it with
// `nervure_sample_free`.
enum nervure_status nervure_latest(struct nervure_node *node,
                                   const char *input,
                                   struct nervure_sample **sample);

// Sends a request to a service, and waits for its answer: for `timeout` nanoseconds, without end if it is negative. Samples
// of other inputs stay in their queues meanwhile. Free the answer with `nervure_sample_free`.
enum nervure_status nervure_call(struct nervure_node *node,
                                 const char *client,
                                 const struct nervure_value *value,
                                 int64_t timeout,
                                 struct nervure_sample **answer);

// For event loops (epoll, poll): returns a descriptor that becomes readable at the next news, after `nervure_arm` returned
// true. It belongs to the node. Returns -1 if `node` is NULL.
int nervure_fd(struct nervure_node *node);

// For event loops: prepares the descriptor of `nervure_fd`. Returns false if there is news already; then take the events
// with `nervure_next` and a timeout of 0 before you sleep. Sleep at most until `until`, in nanoseconds of CLOCK_MONOTONIC,
// when a timer is due or the keeper wants a sign of life; then take events, too.
bool nervure_arm(struct nervure_node *node,
                 uint64_t *until);

// For event loops: ends what `nervure_arm` began. Call it when the sleep ends.
void nervure_disarm(struct nervure_node *node);

// Reads the value in place. It is valid as long as the sample is. A text is as the producer wrote it, without a NUL:
// check that it is UTF-8 if you do not trust the producer. Of an Arrow array `nervure_sample_arrow` returns the array;
// here its pointers are NULL.
enum nervure_status nervure_sample_value(const struct nervure_sample *sample,
                                         struct nervure_value *value);

// Returns the payload's bytes, for any value. They are valid as long as the sample is.
enum nervure_status nervure_sample_bytes(const struct nervure_sample *sample, struct nervure_bytes *value);

// Exports the value as an Arrow array, in place where Arrow allows it. The array keeps the sample's memory until it is
// released; the sample may be freed before.
enum nervure_status nervure_sample_arrow(const struct nervure_sample *sample,
                                         struct ArrowArray *array,
                                         struct ArrowSchema *schema);

// Reads times and numbers.
enum nervure_status nervure_sample_info(const struct nervure_sample *sample, struct nervure_info *info);

// Reads the metadata. Free them with `nervure_metadata_free`.
enum nervure_status nervure_sample_metadata(const struct nervure_sample *sample,
                                            struct nervure_metadata **metadata);

// Writes the name of the coordinate frame with a NUL at its end: `NERVURE_STATUS_NONE` if none was sent,
// `NERVURE_STATUS_ARGUMENT` if `size` bytes are too few.
enum nervure_status nervure_sample_frame(const struct nervure_sample *sample, char *name, size_t size);

// Returns a sample that outlives its event: a view of the same memory. Free it with `nervure_sample_free`. NULL if `sample`
// is.
struct nervure_sample *nervure_sample_keep(const struct nervure_sample *sample);

// As `nervure_sample_keep`, with the value copied to private memory, so that it holds no memory of its producer.
struct nervure_sample *nervure_sample_copy(const struct nervure_sample *sample);

// Frees a sample that `nervure_sample_keep`, `nervure_sample_copy`, `nervure_latest` or `nervure_call` returned, but no
// sample of an event.
void nervure_sample_free(struct nervure_sample *sample);

// Sends a value: it is copied once, into shared memory. While the queue of a `block` edge is full this waits, until there is
// room or the dataflow stops (`NERVURE_STATUS_STOPPED`). Any thread may send. `envelope` may be NULL.
enum nervure_status nervure_send(const struct nervure_output *output,
                                 const struct nervure_value *value,
                                 const struct nervure_envelope *envelope);

// As `nervure_send`, and returns `NERVURE_STATUS_TIMEOUT` if the queue of a `block` edge is full: then nothing was sent.
enum nervure_status nervure_try_send(const struct nervure_output *output,
                                     const struct nervure_value *value,
                                     const struct nervure_envelope *envelope);

// Borrows shared memory for bytes, a text or a tensor like `value`, whose data are not read. Write the data to `memory`,
// whose initial contents are unspecified. Send it with `nervure_loan_send`, or give it back with `nervure_loan_free`.
enum nervure_status nervure_borrow(const struct nervure_output *output,
                                   const struct nervure_value *value,
                                   void **memory,
                                   struct nervure_loan **loan);

// Sends the filled memory without a copy, and frees the loan, also if it fails. It waits as `nervure_send` does.
enum nervure_status nervure_loan_send(struct nervure_loan *loan,
                                      const struct nervure_envelope *envelope_of);

// Gives memory back without sending it.
void nervure_loan_free(struct nervure_loan *loan);

// The message of the last function that failed in this thread; empty if none has. It is valid until the next one fails
// in this thread.
const char *nervure_error(void);

// Looks up the pose of the frame `source` in the frame `target`, at a time in nanoseconds since the Unix epoch, such as the
// stamp of a sample; 0 for the newest time that all transforms between the frames cover. Waits for `timeout` nanoseconds
// for a transform that has not come, without end if it is negative, not at all if it is 0; samples of other inputs stay in
// their queues meanwhile. Returns `NERVURE_STATUS_TRANSFORM` if there is none, and `nervure_error` names the transform that
// is missing or late. The node has `transforms: true` in the dataflow file.
enum nervure_status nervure_transform_lookup(struct nervure_node *node,
                                             const char *target,
                                             const char *source,
                                             int64_t time,
                                             int64_t timeout,
                                             struct nervure_transform *transform);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

// Bytes as a value.
static inline struct nervure_value nervure_from_bytes(const void *data, size_t size) {
    struct nervure_value value;
    memset(&value, 0, sizeof value);
    value.kind = NERVURE_KIND_BYTES;
    value.as.bytes.data = data;
    value.as.bytes.size = size;
    return value;
}

// A text of C as a value.
static inline struct nervure_value nervure_from_text(const char *text) {
    struct nervure_value value = nervure_from_bytes(text, strlen(text));
    value.kind = NERVURE_KIND_TEXT;
    return value;
}

// A truth value as a value.
static inline struct nervure_value nervure_from_bool(bool boolean) {
    struct nervure_value value = nervure_from_bytes(NULL, 0);
    value.kind = NERVURE_KIND_BOOL;
    value.as.boolean = boolean;
    return value;
}

// An integer as a value.
static inline struct nervure_value nervure_from_integer(int64_t integer) {
    struct nervure_value value = nervure_from_bytes(NULL, 0);
    value.kind = NERVURE_KIND_INTEGER;
    value.as.integer = integer;
    return value;
}

// An unsigned integer as a value.
static inline struct nervure_value nervure_from_unsigned(uint64_t integer) {
    struct nervure_value value = nervure_from_integer((int64_t)integer);
    if (integer > INT64_MAX) {
        value.kind = NERVURE_KIND_UNSIGNED;
        value.as.unsigned_integer = integer;
    }
    return value;
}

// A floating-point number as a value.
static inline struct nervure_value nervure_from_number(double number) {
    struct nervure_value value = nervure_from_bytes(NULL, 0);
    value.kind = NERVURE_KIND_FLOAT;
    value.as.number = number;
    return value;
}

// A struct of the program as a value. Both pointers have to live as long as the value is used.
static inline struct nervure_value nervure_from_struct(const struct nervure_layout *layout, const void *data) {
    struct nervure_value value = nervure_from_bytes(NULL, 0);
    value.kind = NERVURE_KIND_STRUCT;
    value.as.structure.layout = layout;
    value.as.structure.data = data;
    return value;
}

// A record as a value.
static inline struct nervure_value nervure_from_builder(const struct nervure_builder *builder) {
    struct nervure_value value = nervure_from_bytes(NULL, 0);
    value.kind = NERVURE_KIND_BUILDER;
    value.as.builder = builder;
    return value;
}

// Sets a number of a record: see `nervure_builder_set`.
static inline enum nervure_status nervure_builder_set_number(struct nervure_builder *builder, const char *path, double number) {
    const struct nervure_value value = nervure_from_number(number);
    return nervure_builder_set(builder, path, &value);
}

// Sets an integer of a record: see `nervure_builder_set`.
static inline enum nervure_status nervure_builder_set_integer(struct nervure_builder *builder, const char *path, int64_t integer) {
    const struct nervure_value value = nervure_from_integer(integer);
    return nervure_builder_set(builder, path, &value);
}

// Sets a truth value of a record: see `nervure_builder_set`.
static inline enum nervure_status nervure_builder_set_bool(struct nervure_builder *builder, const char *path, bool boolean) {
    const struct nervure_value value = nervure_from_bool(boolean);
    return nervure_builder_set(builder, path, &value);
}

// Sets a text of a record: see `nervure_builder_set`.
static inline enum nervure_status nervure_builder_set_text(struct nervure_builder *builder, const char *path, const char *text) {
    const struct nervure_value value = nervure_from_text(text);
    return nervure_builder_set(builder, path, &value);
}

// Makes a shared library a component: a node that shares a process with the nodes that have the same `process` in the
// dataflow file, or runs alone. `run` has the type `int run(nervure_node *node)`; it runs on a thread of the node's own, and
// returns 0 for success. The node is freed afterwards. Link with `-shared`, without a `main`.
#define NERVURE_COMPONENT(run)                                                                                \
    __attribute__((visibility("default"))) int nervure_component_v1(int control, char *reason,               \
                                                                    size_t capacity) {                        \
        nervure_node *nervure_component_node = NULL;                                                          \
        if (nervure_component_connect(control, &nervure_component_node) != NERVURE_STATUS_OK) {               \
            nervure_component_reason(reason, capacity, nervure_error());                                      \
            return 1;                                                                                         \
        }                                                                                                     \
        int nervure_component_code = run(nervure_component_node);                                             \
        nervure_disconnect(nervure_component_node);                                                           \
        return nervure_component_code;                                                                        \
    }

// Copies the reason of a component's failure, cut to its capacity.
static inline void nervure_component_reason(char *reason, size_t capacity, const char *text) {
    if (capacity > 0) {
        size_t length = strlen(text);
        length = length < capacity ? length : capacity - 1;
        memcpy(reason, text, length);
        reason[length] = 0;
    }
}

// A tensor in C order as a value. `shape` has to live as long as the value is used.
static inline struct nervure_value
nervure_from_tensor(enum nervure_dtype dtype, size_t dimensions, const size_t *shape, const void *data) {
    struct nervure_value value = nervure_from_bytes(NULL, 0);
    value.kind = NERVURE_KIND_TENSOR;
    value.as.tensor.data = data;
    value.as.tensor.dtype = dtype;
    value.as.tensor.item_size = nervure_dtype_size(dtype);
    value.as.tensor.dimensions = dimensions;
    value.as.tensor.shape = shape;
    value.as.tensor.strides = NULL;
    return value;
}

#endif // NERVURE_H
