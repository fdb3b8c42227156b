/* The operator of the tests in C. The environment variable MODE lets it fail or stop. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator_api.h"

static int is_mode(const char *mode)
{
    const char *is = getenv("MODE");
    return is != NULL && strcmp(is, mode) == 0;
}

/* An error in memory of malloc. */
static DoraResult_t error(const char *text)
{
    Vec_uint8_t *bytes = malloc(sizeof *bytes);
    bytes->ptr = (uint8_t *)strdup(text);
    bytes->len = bytes->cap = strlen(text);
    return (DoraResult_t){.error = bytes};
}

/* Writes a line now: standard output is a pipe. */
#define SEEN(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

DoraInitResult_t dora_init_operator(void)
{
    DoraInitResult_t result = {.operator_context = calloc(1, sizeof(int))};
    if (is_mode("init"))
        result.result = error("no camera");
    return result;
}

DoraResult_t dora_drop_operator(void *context)
{
    SEEN("dropped after %d", *(int *)context);
    free(context);
    return (DoraResult_t){0};
}

static DoraResult_t on_input(Input_t *input, const SendOutput_t *send, int *count)
{
    char *id = dora_read_input_id(input);
    Vec_uint8_t data = dora_read_data(input);
    SEEN("input %s %zu", id, data.len);
    dora_free_input_id(id);
    dora_free_data(data);

    char text[32];
    int length = snprintf(text, sizeof text, "number %d", ++*count);
    DoraResult_t sent = dora_send_operator_output(send, "text", (uint8_t *)text, (size_t)length);
    DoraResult_t undeclared = dora_send_operator_output(send, "undeclared", NULL, 0);
    SEEN("sent %d %d", sent.error == NULL, undeclared.error == NULL);
    return is_mode("send") ? dora_send_operator_output(send, "text", NULL, 7) : sent;
}

OnEventResult_t dora_on_event(RawEvent_t *event, const SendOutput_t *send, void *context)
{
    OnEventResult_t result = {.status = DORA_STATUS_CONTINUE};
    if (event->input != NULL)
        result.result = on_input(event->input, send, context);
    if (event->input_closed.ptr != NULL)
        SEEN("closed %.*s", (int)event->input_closed.len, event->input_closed.ptr);
    if (event->stop)
        SEEN("stop");
    if (is_mode("event"))
        result.result = error("lens covered");
    if (is_mode("stop"))
        result.status = DORA_STATUS_STOP;
    if (is_mode("stop all"))
        result.status = DORA_STATUS_STOP_ALL;
    return result;
}
