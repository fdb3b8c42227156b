// A source: a picture at each tick, filled in place in shared memory.
#include <nervure.hpp>

#include <algorithm>

int main() {
    nervure::Node node = nervure::Node::connect();
    const nervure::Output images = node.output("image");
    std::uint8_t grey = 0;
    while (const nervure::Event event = node.next()) {
        if (event.is_tick("tick")) {
            nervure::Loan<std::uint8_t> image = images.loan<std::uint8_t>({480, 640});
            std::fill(image.begin(), image.end(), grey);
            std::move(image).send(nervure::Envelope().stamp(event.get().due));
            grey = static_cast<std::uint8_t>(grey + 10);
        }
    }
}
