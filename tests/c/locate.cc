// Prints the poses of a camera at the stamps of its images, as `tests/test_c.py` expects it.
#include <nervure.hpp>

#include <cstdio>

int main() {
    nervure::Node node = nervure::Node::connect();
    while (nervure::Event event = node.next()) {
        if (event.is_input("image")) {
            const nervure_transform found =
                node.lookup("map", "camera", event.sample().info().stamp, std::chrono::seconds(30));
            std::printf("%.1f %.1f %.1f, w %.1f\n", found.translation[0], found.translation[1],
                        found.translation[2], found.rotation[3]);
        }
    }
    try {
        (void)node.lookup("map", "camara");
        return 1;
    } catch (const nervure::Error &error) {
        std::printf("%s\n", error.what());
        return error.status() == NERVURE_STATUS_TRANSFORM ? 0 : 1;
    }
}
