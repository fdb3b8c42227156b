// Wakes at each tick of its timer, and sends a measurement with the time when the tick was due.
#include "times.hpp"

#include <nervure.hpp>

static void run(nervure::Node node) {
    Times late("sensor.times");
    const nervure::Output measured = node.output("measured");
    while (const nervure::Event event = node.next()) {
        if (event.is_tick("tick")) {
            late.add(node.now() - event.get().due);
            measured.send(1.0, nervure::Envelope().stamp(event.get().due));
        }
    }
    late.write();
}

NERVURE_COMPONENT(run)
