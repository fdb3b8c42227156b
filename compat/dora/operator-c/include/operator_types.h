/* The types of dora's API for operators in C, over Nervure, and the functions that operators call. Link the shared
 * library of an operator with -ldora_operator_api_c. */
#ifndef NERVURE_DORA_OPERATOR_TYPES_H
#define NERVURE_DORA_OPERATOR_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes in memory of `malloc`. Text is not terminated. */
typedef struct Vec_uint8 {
    uint8_t *ptr;
    size_t len;
    size_t cap;
} Vec_uint8_t;

/* Success, or an error as text: then `error` and its bytes are in memory of `malloc`, and belong to the receiver. */
typedef struct DoraResult {
    Vec_uint8_t *error;
} DoraResult_t;

typedef struct DoraInitResult {
    DoraResult_t result;
    void *operator_context; /* What the other functions get. */
} DoraInitResult_t;

/* What happens after an event. */
enum DoraStatus {
    DORA_STATUS_CONTINUE = 0, /* The operator goes on. */
    DORA_STATUS_STOP = 1,     /* The operator has ended. */
    DORA_STATUS_STOP_ALL = 2, /* As in dora, this is an error: a dataflow cannot be stopped by an operator. */
};
typedef uint8_t DoraStatus_t;

typedef struct OnEventResult {
    DoraResult_t result;
    DoraStatus_t status;
} OnEventResult_t;

typedef struct Input Input_t;

/* An event: one of its members is set. It belongs to the caller. */
typedef struct RawEvent {
    Input_t *input;           /* Data has arrived, or a timer is due. */
    Vec_uint8_t input_closed; /* The name of an input whose producer has ended. */
    bool stop;                /* The operator has to end. */
    Vec_uint8_t error;        /* Data of an input could not be read. */
} RawEvent_t;

typedef struct Output Output_t;

typedef struct ArcDynFn1_DoraResult_Output {
    void *env_ptr;
    DoraResult_t (*call)(void *, Output_t *);
    void (*release)(void *);
    void (*retain)(void *);
} ArcDynFn1_DoraResult_Output_t;

/* Sends outputs, during a call of `dora_on_event`. */
typedef struct SendOutput {
    ArcDynFn1_DoraResult_Output_t send_output;
} SendOutput_t;

/* Pointers to the functions of an operator, for checks of their types. */
typedef struct DoraInitOperator {
    DoraInitResult_t (*init_operator)(void);
} DoraInitOperator_t;

typedef struct DoraDropOperator {
    DoraResult_t (*drop_operator)(void *);
} DoraDropOperator_t;

typedef struct DoraOnEvent {
    OnEventResult_t (*on_event)(RawEvent_t *, SendOutput_t const *, void *);
} DoraOnEvent_t;

/* Returns the name of the input, terminated. To be freed with dora_free_input_id. */
char *dora_read_input_id(Input_t const *input);

void dora_free_input_id(char *input_id);

/* Returns a copy of the input's bytes, to be freed with dora_free_data. Its `ptr` is NULL for timers, for empty data,
 * and for data that is neither bytes, nor text, nor an array of UInt8. */
Vec_uint8_t dora_read_data(Input_t *input);

void dora_free_data(Vec_uint8_t data);

/* Sends bytes to the operator's output of that name. `data_ptr` may be NULL if `data_len` is 0. */
DoraResult_t dora_send_operator_output(SendOutput_t const *send_output, char const *id, uint8_t const *data_ptr,
                                       size_t data_len);

#ifdef __cplusplus
}
#endif

#endif
