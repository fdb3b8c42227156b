// Prints the samples that belong together, as `tests/test_c.py` expects it.
#include <nervure.hpp>

#include <iostream>

int main() {
    nervure::Node node = nervure::Node::connect();
    while (nervure::Event event = node.next()) {
        if (!event.is_sync()) {
            continue;
        }
        std::cout << event.sample("image").integer() << " + " << event.sample("cloud").integer() << " +";
        for (std::size_t index = 0; index < event.count("imu"); index++) {
            std::cout << ' ' << event.sample("imu", index).integer();
        }
        std::cout << std::endl;
        try {
            (void)event.sample("none");
            return 1;
        } catch (const nervure::Error &) {
        }
    }
}
