// Sends a generated struct of a type that a folder defines, as `tests/test_type_folders.py` expects it.
#include "arm_types.hpp"
#include <nervure.hpp>

int main() {
    nervure::Node node = nervure::Node::connect();
    arm::State state;
    state.joints.push_back({"elbow", 1.5});
    state.hand.x = 0.5;
    state.gear = 4;
    node.output("state").send(state);
}
