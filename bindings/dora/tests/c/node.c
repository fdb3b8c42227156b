/* The nodes of the tests in C: `node ROLE FILE`. They write what they see to the file. */
#include <stdio.h>
#include <string.h>

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
    else
        sink(context, seen);
    fclose(seen);
    free_dora_context(context);
    return 0;
}
