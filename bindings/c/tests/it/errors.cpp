// Prints what the wrapper says of values that are not what a program asks for.

#include <cstdint>
#include <cstdio>

#include <nervure.hpp>

static nervure_value value;

extern "C" nervure_status nervure_sample_value(const nervure_sample *, nervure_value *found) {
    *found = value;
    return NERVURE_STATUS_OK;
}

extern "C" const char *nervure_error(void) { return ""; }

template <typename Read> static void print_error(Read read) {
    try {
        read(nervure::SampleView(nullptr));
        std::puts("no error");
    } catch (const nervure::Error &error) {
        std::puts(error.what());
    }
}

int main() {
    alignas(8) static const char bytes[16] = {};
    static const std::size_t shape[] = {2};
    static const std::size_t strides[] = {8};
    value.kind = NERVURE_KIND_TEXT;
    print_error([](auto sample) { sample.integer(); });
    print_error([](auto sample) { sample.template tensor<float>(); });
    value = {};
    value.kind = NERVURE_KIND_TENSOR;
    value.as.tensor.shape = shape;
    value.as.tensor.dimensions = 1;
    value.as.tensor.data = const_cast<char *>(bytes);
    value.as.tensor.dtype = NERVURE_DTYPE_U8;
    print_error([](auto sample) { sample.template tensor<float>(); });
    value.as.tensor.dtype = NERVURE_DTYPE_U16;
    value.as.tensor.strides = strides;
    print_error([](auto sample) { sample.template tensor<std::uint16_t>(); });
    value.as.tensor.strides = nullptr;
    value.as.tensor.data = const_cast<char *>(bytes + 1);
    print_error([](auto sample) { sample.template tensor<std::uint16_t>(); });
}
