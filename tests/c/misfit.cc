// As `misfit.c`, in C++.
#include <nervure.hpp>

#include <cstdlib>
#include <iostream>

static void refused(const nervure::Output &output, const nervure::Value &value) {
    try {
        output.send(value);
    } catch (const nervure::Error &error) {
        std::cout << "refused: " << error.what() << std::endl;
        return;
    }
    std::exit(1);
}

int main() {
    nervure::Node node = nervure::Node::connect();
    const nervure::Output image = node.output("image");
    const std::vector<std::uint8_t> pixels{1, 2, 3, 4, 5, 6};
    image.send_tensor(pixels, {2, 3});
    const std::size_t shape[] = {2, 3};
    refused(node.output("imu"), nervure::Value(nervure_from_tensor(NERVURE_DTYPE_U8, 2, shape, pixels.data())));
    refused(image, nervure::Value(nervure_from_tensor(NERVURE_DTYPE_U8, 1, shape, pixels.data())));
    refused(image, "no image");
    return 0;
}
