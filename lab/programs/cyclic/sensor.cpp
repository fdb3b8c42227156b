// Wakes at each tick of its timer, and sends a measurement with the time when the tick was due.
#include "times.hpp"

#include <nervure.hpp>

static void run(nervure::Node node) {
    constexpr std::int64_t PERIOD_NANOS = 1'000'000;
    Times late("sensor.times");
    const nervure::Output measured = node.output("measured");
    while (const nervure::Event event = node.next()) {
        if (event.is_tick("tick")) {
            const std::int64_t newest = node.now() - event.get().due;
            // A tick stands for the ticks that a late wake-up has skipped. The bare loop catches up on them, so
            // that each counts with its own lateness.
            for (std::uint64_t before = event.get().count; before > 0; --before) {
                late.add(newest + static_cast<std::int64_t>(before) * PERIOD_NANOS);
            }
            late.add(newest);
            measured.send(1.0, nervure::Envelope().stamp(event.get().due));
        }
    }
    late.write();
}

NERVURE_COMPONENT(run)
