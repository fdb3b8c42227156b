/* dora's API for C nodes, over Nervure. Link with -ldora_node_api_c -lm -ldl -lpthread.
 *
 * A process has one context. A context is used by one thread at a time; an event may be read by several.
 * A NULL context or event is reported on standard error, and the call fails. */
#ifndef NERVURE_DORA_NODE_API_H
#define NERVURE_DORA_NODE_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of an event. */
enum DoraEventType {
    DoraEventType_Stop,        /* The node has to end; this is the last event. */
    DoraEventType_Input,       /* Data arrived, or a timer is due. */
    DoraEventType_InputClosed, /* The producer of an input has ended. */
    DoraEventType_Error,       /* Data of an input could not be read. */
    DoraEventType_Unknown,     /* Another event: to be ignored. */
};
#ifndef __cplusplus
typedef enum DoraEventType DoraEventType;
#endif

/* Connects to the keeper that started the program. Returns NULL on failure, and writes the reason to standard
 * error. */
void *init_dora_context_from_env();

/* Ends the node. */
void free_dora_context(void *dora_context);

/* Waits for the next event. Returns NULL after the last one. Every event is to be freed. */
void *dora_next_event(void *dora_context);

/* Frees an event, and with it the id and data that were read from it. */
void free_dora_event(void *dora_event);

/* Returns the kind of an event. */
enum DoraEventType read_dora_event_type(void *dora_event);

/* Reads the name of an input; NULL and 0 for events of other kinds. The name is not terminated. */
void read_dora_input_id(void *dora_event, char **out_ptr, size_t *out_len);

/* Reads the bytes of an input; NULL and 0 for events of other kinds, for timers and for empty data. Data that is
 * neither bytes, nor text, nor an array of UInt8 gives NULL and 0 as well, with a line on standard error. */
void read_dora_input_data(void *dora_event, char **out_ptr, size_t *out_len);

/* Reads the time of publication: seconds since the Unix epoch in the upper 32 bits, and their fraction in the
 * lower ones. 0 for events of other kinds. */
unsigned long long read_dora_input_timestamp(void *dora_event);

/* Sends bytes. Returns 0, or -1 with a line on standard error. Data for an output that the dataflow file does not
 * declare is dropped, and reported once. */
int dora_send_output(void *dora_context, const char *id_ptr, size_t id_len, const char *data_ptr, size_t data_len);

/* Writes a line of that level (error, warn, info, debug, trace) to the log. Returns 0, or -1. */
int dora_log(void *dora_context, const char *level_ptr, size_t level_len, const char *msg_ptr, size_t msg_len);

#ifdef __cplusplus
}
#endif

#endif
