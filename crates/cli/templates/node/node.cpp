// Purpose of this node, in one sentence.
#include <nervure.hpp>

int main() {
    nervure::Node node = nervure::Node::connect();
    const nervure::Output output = node.output("output");
    while (const nervure::Event event = node.next()) {
        if (event.is_input("input")) {
            const nervure::SampleView sample = event.sample();
            output.send(sample.bytes(), nervure::Envelope().like(sample));
        }
    }
}
