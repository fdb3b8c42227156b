// Answers each measurement with a command.
#include <nervure.hpp>

static void run(nervure::Node node) {
    const nervure::Output command = node.output("command");
    while (const nervure::Event event = node.next()) {
        if (event.is_input("measured")) {
            command.send(event.sample().number() * 2, nervure::Envelope().like(event.sample()));
        }
    }
}

NERVURE_COMPONENT(run)
