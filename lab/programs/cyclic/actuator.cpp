// Receives each command. Its time counts from the moment when the tick was due.
#include "times.hpp"

#include <nervure.hpp>

static void run(nervure::Node node) {
    Times late("actuator.times");
    while (const nervure::Event event = node.next()) {
        if (event.is_input("command")) late.add(node.now() - event.sample().info().stamp);
    }
    late.write();
}

NERVURE_COMPONENT(run)
