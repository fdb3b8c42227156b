// Sleeps until absolute times, 1 ms apart, as cyclictest does: `bare SECONDS`. Has the scheduling and memory of
// the nodes. Exit code 2: it has no right to them.
#include "times.hpp"

#include <cstdlib>
#include <ctime>
#include <sched.h>
#include <sys/mman.h>

int main(int, char **arguments) {
    const sched_param priority{80};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0 || mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 2;
    Times late("bare.times");
    timespec due, now;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (long turn = std::atol(arguments[1]) * 1000; turn > 0; --turn) {
        due.tv_nsec += 1'000'000;
        if (due.tv_nsec >= 1'000'000'000) {
            due.tv_nsec -= 1'000'000'000;
            ++due.tv_sec;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
        clock_gettime(CLOCK_MONOTONIC, &now);
        late.add((now.tv_sec - due.tv_sec) * 1'000'000'000L + now.tv_nsec - due.tv_nsec);
    }
    return late.write() ? 0 : 1;
}
