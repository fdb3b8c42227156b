// The control law: at each tick, the acceleration of the cart from the newest state.
#include <nervure.hpp>

#include <iostream>
#include <optional>

static void run(nervure::Node node) {
    // Places the poles at -1.5 +- i, -4 and -5 per second.
    constexpr double GAINS[] = {6.6, 9.1, 66.7, 21.1};
    const nervure::Output command = node.output("command");
    std::uint64_t late = 0;
    bool is_blind = true;
    while (const nervure::Event event = node.next()) {
        if (event.kind() == NERVURE_EVENT_KIND_STALE) {
            // No state for 100 ms: the cart rolls on, rather than accelerates by an old one.
            is_blind = true;
            command.send(0.0);
        } else if (event.is_input("state")) {
            is_blind = false;
        } else if (event.kind() == NERVURE_EVENT_KIND_DEADLINE_MISSED) {
            late = event.get().count;
        } else if (event.is_tick("tick") && !is_blind) {
            if (const std::optional<nervure::Sample> newest = node.latest("state")) {
                const nervure::TensorView<double> state = newest->view().tensor<double>();
                double acceleration = 0;
                for (std::size_t at = 0; at < 4; ++at) {
                    acceleration += GAINS[at] * state[at];
                }
                // `like` passes on the time of the measurement, so that the command's age counts from there.
                command.send(acceleration, nervure::Envelope().like(newest->view()));
            }
        }
    }
    std::cout << "late in " << late << " turns" << std::endl;
}

NERVURE_COMPONENT(run)
