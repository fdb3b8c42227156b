// A task: computes something from each picture.
#include <nervure.hpp>

#include <numeric>

// The mean of all pixels, from 0 to 255; 0 for no pixels.
static double brightness(nervure::Span<const std::uint8_t> pixels) {
    const double sum = std::accumulate(pixels.begin(), pixels.end(), 0.0);
    return pixels.empty() ? 0.0 : sum / static_cast<double>(pixels.size());
}

int main() {
    nervure::Node node = nervure::Node::connect();
    const nervure::Output output = node.output("brightness");
    while (const nervure::Event event = node.next()) {
        if (event.is_input("image")) {
            // `like` keeps the time at which the picture was taken.
            const nervure::Envelope envelope = nervure::Envelope().like(event.sample());
            output.send(brightness(event.sample().tensor<std::uint8_t>()), envelope);
        }
    }
}
