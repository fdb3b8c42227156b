// Reads the records of each input into the struct of its type, and sends that struct.
#include <nervure.hpp>
#include <nervure_types.hpp>

using namespace nervure::types;

template <typename T> static void echo(const nervure::Node &node, const nervure::Event &event, const char *name) {
    if (event.is_input(name)) {
        // Read into an object that has other values.
        static T value = nervure::read<T>(event.sample());
        nervure::read(event.sample(), value);
        node.output(name).send(value, nervure::Envelope().like(event.sample()));
    }
}

int main() {
    nervure::Node node = nervure::Node::connect();
    while (const nervure::Event event = node.next()) {
        echo<BatteryState>(node, event, "battery");
        echo<Detections2D>(node, event, "detections");
        echo<Diagnostics>(node, event, "diagnostics");
        echo<Imu>(node, event, "imu");
        echo<JointState>(node, event, "joints");
        echo<LaserScan>(node, event, "scan");
        echo<OccupancyGrid>(node, event, "map");
        echo<Odometry>(node, event, "odometry");
        echo<Path>(node, event, "path");
        echo<Twist>(node, event, "twist");
    }
    return 0;
}
