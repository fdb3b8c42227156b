// Writes or reads the vectors: `node write` or `node read`.
#include <nervure.hpp>

#include <fstream>
#include <iostream>
#include <map>

#include "vectors.h"

namespace {

void write_all(nervure::Node &node, const vectors &all) {
    const nervure::Output out = node.output("out");
    for (std::size_t at = 0; at < all.count; at++) {
        const vector &one = all.items[at];
        ArrowArray array;
        ArrowSchema schema;
        const nervure::Value value(vectors_exported(&one, &array, &schema));
        nervure::Metadata metadata;
        metadata.set("vector", one.number);
        try {
            out.send(value, nervure::Envelope().metadata(metadata));
        } catch (const nervure::Error &error) {
            if (!one.is_custom || error.status() != NERVURE_STATUS_ARGUMENT) {
                std::cerr << one.name << ": " << error.what() << std::endl;
                throw;
            }
        }
    }
}

// Compares the typed view, if the tensor has this type and no strides.
template <typename T> bool is_same_view(nervure::SampleView sample, const nervure_tensor &tensor) {
    if (tensor.dtype != nervure::detail::dtype_of<T>() || tensor.strides != nullptr) {
        return true;
    }
    const nervure::TensorView<T> view = sample.tensor<T>();
    return view.data() == tensor.data && view.shape().size() == tensor.dimensions;
}

bool is_right(nervure::SampleView sample, const vector &expected) {
    const nervure_value value = sample.value();
    if (value.kind == NERVURE_KIND_TEXT && sample.text().size() != value.as.bytes.size) {
        return false;
    }
    if (value.kind == NERVURE_KIND_TENSOR) {
        const nervure_tensor &tensor = value.as.tensor;
        if (!is_same_view<bool>(sample, tensor) || !is_same_view<std::int16_t>(sample, tensor) ||
            !is_same_view<float>(sample, tensor) || !is_same_view<std::complex<double>>(sample, tensor)) {
            return false;
        }
    }
    return vectors_is_same(sample.handle(), &expected);
}

void read_all(nervure::Node &node, const vectors &all) {
    std::map<std::int64_t, const vector *> by_number;
    for (std::size_t at = 0; at < all.count; at++) {
        by_number[all.items[at].number] = &all.items[at];
    }
    std::map<std::string, unsigned> right;
    std::ofstream verdicts("verdicts-xx");
    while (nervure::Event event = node.next()) {
        if (event.kind() != NERVURE_EVENT_KIND_INPUT) {
            continue;
        }
        char name[64] = "";
        const std::int64_t number = vectors_number(event.sample().handle(), name, sizeof name);
        if (number < 0) {
            verdicts << name << (vectors_is_read(event.sample().handle()) ? " read\n" : " refused\n");
        } else if (is_right(event.sample(), *by_number.at(number))) {
            right[std::string(event.id())]++;
        } else {
            std::cout << "wrong: " << by_number.at(number)->name << " of " << event.id() << std::endl;
        }
    }
    for (const auto &[writer, count] : right) {
        std::cout << count << " of " << writer << " are right" << std::endl;
    }
}

} // namespace

int main(int count, char **arguments) {
    nervure::Node node = nervure::Node::connect();
    // They stay until the end.
    static const vectors all = vectors_read();
    if (count == 2 && std::string_view(arguments[1]) == "write") {
        write_all(node, all);
    } else {
        read_all(node, all);
    }
}
