// Forwards its input, and answers and makes requests, as `tests/test_c.py` expects it.
#include <nervure.hpp>

#include <iostream>

int main() {
    nervure::Node node = nervure::Node::connect();
    nervure::Output out = node.output("out");
    std::vector<nervure::Sample> kept;
    while (nervure::Event event = node.next()) {
        if (event.is_input("in")) {
            const nervure::SampleView sample = event.sample();
            kept.emplace_back(sample);
            const nervure::Envelope envelope = nervure::Envelope().like(sample);
            const nervure_value value = sample.value();
            if (value.kind == NERVURE_KIND_ARROW) {
                ArrowArray array;
                ArrowSchema schema;
                nervure::detail::check(nervure_sample_arrow(sample.handle(), &array, &schema));
                nervure_value arrow = value;
                arrow.as.arrow = {&array, &schema};
                out.send(nervure::Value(arrow), envelope);
                continue;
            }
            const nervure::Metadata metadata = sample.metadata();
            if (metadata.size() > 0) {
                out.send(nervure::Value(value), nervure::Envelope(envelope).metadata(metadata));
                const nervure::TensorView<float> matrix = sample.tensor<float>();
                std::cout << "last element " << matrix(1, 2) << " at " << sample.info().stamp << std::endl;
                char frame[16];
                nervure::detail::check(nervure_sample_frame(sample.handle(), frame, sizeof frame));
                std::cout << "frame " << frame << ", side "
                          << static_cast<const char *>(metadata.get("side")->as.bytes.data)[0] << std::endl;
                if (nervure_sample_frame(sample.handle(), frame, 3) != NERVURE_STATUS_ARGUMENT || metadata.get("none")) {
                    return 1;
                }
                try {
                    (void)sample.tensor<double>();
                } catch (const nervure::Error &error) {
                    std::cout << "refused: " << error.what() << std::endl;
                }
            } else {
                out.send(nervure::Value(value), envelope);
            }
        } else if (event.is_request("double")) {
            event.reply(2 * event.sample().integer());
        } else if (event.kind() == NERVURE_EVENT_KIND_INPUT_CLOSED && event.id() == "in") {
            std::cout << "kept " << kept.size() << ", the first has " << kept[0].view().bytes().size() << " bytes"
                      << std::endl;
            kept.clear();
        }
    }
    return 0;
}
