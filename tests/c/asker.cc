// Makes requests, as `tests/test_c.py` expects it.
#include <nervure.hpp>

#include <iostream>

int main() {
    nervure::Node node = nervure::Node::connect();
    std::cout << "plan " << node.call("plan", 6).view().integer() << std::endl;
    try {
        node.call("plan", -1, std::chrono::seconds(10));
    } catch (const nervure::Error &error) {
        std::cout << error.status() << ": " << error.what() << std::endl;
    }
    try {
        node.call("way", 1);
    } catch (const nervure::Error &error) {
        std::cout << error.status() << ": " << error.what() << std::endl;
    }
    if (node.next_for(std::chrono::milliseconds(1)) || node.has_ended()) {
        return 1;
    }
}
