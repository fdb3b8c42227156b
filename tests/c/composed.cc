// A component: prints the sum of its input, and throws if its parameter `throws` says so.
#include <nervure.hpp>

#include <iostream>
#include <stdexcept>

static void run(nervure::Node node) {
    const bool throws = node.param("throws").as.boolean;
    std::int64_t sum = 0;
    while (nervure::Event event = node.next()) {
        if (event.is_input("in")) {
            sum += event.sample().integer();
            if (throws && sum > 3) {
                throw std::runtime_error("the sum is " + std::to_string(sum));
            }
        }
    }
    std::cout << "sum " << sum << std::endl;
}

NERVURE_COMPONENT(run)
