#define _POSIX_C_SOURCE 199309L
/* The nodes of the tests in C: `node ROLE FILE`. They write their events to the file. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "node_api.h"

static void source(void *context, FILE *seen)
{
    void *event = dora_next_event(context);
    char *id, *data;
    size_t id_length, data_length;
    read_dora_input_id(event, &id, &id_length);
    read_dora_input_data(event, &data, &data_length);
    fprintf(seen, "type %d id %.*s data %d %zu\n", read_dora_event_type(event), (int)id_length, id,
            data != NULL, data_length);
    fprintf(seen, "time %d\n", read_dora_input_timestamp(event) >> 32 > 1700000000);
    free_dora_event(event);

    fprintf(seen, "bytes %d\n", dora_send_output(context, "bytes", 5, "abc", 3));
    fprintf(seen, "empty %d\n", dora_send_output(context, "bytes", 5, NULL, 0));
    fprintf(seen, "undeclared %d\n", dora_send_output(context, "undeclared", 10, "x", 1));
    fprintf(seen, "undeclared %d\n", dora_send_output(context, "undeclared", 10, "x", 1));
    fprintf(seen, "no data %d\n", dora_send_output(context, "bytes", 5, NULL, 3));
    fprintf(seen, "no name %d\n", dora_send_output(context, NULL, 5, "x", 1));
    fprintf(seen, "not a name %d\n", dora_send_output(context, "\xff", 1, "x", 1));
    fprintf(seen, "no context %d\n", dora_send_output(NULL, "bytes", 5, "x", 1));
    fprintf(seen, "log %d\n", dora_log(context, "warn", 4, "battery low", 11));
    fprintf(seen, "no log %d\n", dora_log(context, "warn", 4, NULL, 11));
}

static void sink(void *context, FILE *seen)
{
    void *event;
    while ((event = dora_next_event(context)) != NULL) {
        char *id, *data;
        size_t id_length, data_length;
        read_dora_input_id(event, &id, &id_length);
        read_dora_input_data(event, &data, &data_length);
        switch (read_dora_event_type(event)) {
        case DoraEventType_Input:
            fprintf(seen, "%.*s: %d", (int)id_length, id, data != NULL);
            for (size_t at = 0; at < data_length; at++)
                fprintf(seen, " %d", data[at]);
            fprintf(seen, "\n");
            break;
        case DoraEventType_InputClosed:
            fprintf(seen, "closed %d %d\n", id != NULL, data != NULL);
            break;
        case DoraEventType_Stop:
            fprintf(seen, "stop %llu\n", read_dora_input_timestamp(event));
            break;
        default:
            fprintf(seen, "other\n");
        }
        free_dora_event(event);
    }
    fprintf(seen, "end %d\n", dora_next_event(context) == NULL);
}

/* Waits until the process whose id is in a file has ended. */
static void await_end(const char *path)
{
    for (;;) {
        int id = 0;
        char end = 0;
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            if (fscanf(file, "%d%c", &id, &end) < 2)
                end = 0;
            fclose(file);
        }
        if (end == '\n' && kill(id, 0) != 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* Receives a number, and the next ones when their sender has ended. */
static void late(void *context, FILE *seen)
{
    void *event = dora_next_event(context);
    char *data;
    size_t data_length;
    read_dora_input_data(event, &data, &data_length);
    fprintf(seen, "numbers: %d %d\n", data != NULL, data_length ? data[0] : -1);
    fflush(seen);
    free_dora_event(event);
    await_end(getenv("SENDER"));
    /* The order to stop was sent to both at the same time. Nothing shows that it has arrived here. */
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    sink(context, seen);
}

/* Writes each event, and sends an answer to each number and to each closed input. */
static void reporter(void *context, FILE *seen)
{
    static const char *NAMES[] = {"Stop", "Input", "InputClosed", "Error", "Unknown"};
    void *event;
    while ((event = dora_next_event(context)) != NULL) {
        enum DoraEventType type = read_dora_event_type(event);
        fprintf(seen, "%s\n", NAMES[type]);
        if (type == DoraEventType_Input)
            dora_send_output(context, "got", 3, "x", 1);
        if (type == DoraEventType_InputClosed)
            dora_send_output(context, "closed", 6, "x", 1);
        free_dora_event(event);
    }
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    void *context = init_dora_context_from_env();
    if (context == NULL)
        return 3;
    FILE *seen = fopen(arguments[2], "w");
    if (strcmp(arguments[1], "source") == 0)
        source(context, seen);
    else if (strcmp(arguments[1], "late") == 0)
        late(context, seen);
    else if (strcmp(arguments[1], "reporter") == 0)
        reporter(context, seen);
    else
        sink(context, seen);
    fclose(seen);
    free_dora_context(context);
    return 0;
}
