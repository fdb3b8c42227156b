// A sink: prints its inputs.
#include <nervure.hpp>

#include <cmath>
#include <iostream>

int main() {
    nervure::Node node = nervure::Node::connect();
    while (const nervure::Event event = node.next()) {
        if (event.is_input("brightness")) {
            std::cout << std::lround(event.sample().number()) << std::endl;
        }
    }
}
