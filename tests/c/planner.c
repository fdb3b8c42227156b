// Answers each second request before the first, and fails negative ones, as `tests/test_c.py` expects it.
#include <nervure.h>
#include <stdio.h>
#include <stdlib.h>

static void check(nervure_status status) {
    if (status != NERVURE_STATUS_OK) {
        fprintf(stderr, "%s\n", nervure_error());
        exit(1);
    }
}

static int64_t number(const nervure_sample *sample) {
    nervure_value value;
    check(nervure_sample_value(sample, &value));
    return value.kind == NERVURE_KIND_INTEGER ? value.as.integer : 0;
}

static void answer(const nervure_request *request, int64_t goal) {
    const nervure_value plan = nervure_from_integer(10 * goal);
    check(goal < 0 ? nervure_fail(request, "there is no way back") : nervure_reply(request, &plan));
}

int main(void) {
    nervure_node *node;
    check(nervure_connect(&node));
    nervure_request *kept = NULL;
    int64_t kept_goal = 0;
    nervure_event event;
    while (nervure_next(node, -1, &event) == NERVURE_STATUS_OK) {
        if (event.kind != NERVURE_EVENT_KIND_REQUEST) {
            continue;
        }
        const int64_t goal = number(event.sample);
        printf("%s asks %s for %d\n", event.text, event.id, (int)goal);
        if (goal == 1) {
            kept = nervure_request_keep(event.request);
            kept_goal = goal;
            continue;
        }
        answer(event.request, goal);
        if (kept != NULL) {
            answer(kept, kept_goal);
            if (nervure_fail(kept, "twice") != NERVURE_STATUS_ARGUMENT) {
                return 1;
            }
            nervure_request_free(kept);
            kept = NULL;
        }
    }
    nervure_disconnect(node);
    return 0;
}
