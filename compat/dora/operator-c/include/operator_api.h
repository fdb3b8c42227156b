/* The functions that an operator in C defines. One thread calls them. */
#ifndef NERVURE_DORA_OPERATOR_API_H
#define NERVURE_DORA_OPERATOR_API_H

#include "operator_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EXPORT __attribute__((visibility("default")))

/* Begins the operator, before the first event. */
EXPORT DoraInitResult_t dora_init_operator(void);

/* Ends the operator, after the last event. */
EXPORT DoraResult_t dora_drop_operator(void *operator_context);

/* Handles an event. */
EXPORT OnEventResult_t dora_on_event(RawEvent_t *event, const SendOutput_t *send_output, void *operator_context);

#ifdef __cplusplus
}
#endif

#endif
