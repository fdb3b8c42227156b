// Nervure nodes in C++17: a wrapper of nervure.h, in this header alone.
//
//     nervure::Node node = nervure::Node::connect();
//     nervure::Output answer = node.output("answer");
//     while (nervure::Event event = node.next()) {
//         if (event.is_input("image")) {
//             nervure::TensorView<std::uint8_t> image = event.sample().tensor<std::uint8_t>();
//             answer.send(std::int64_t(image.size()));
//         }
//     }
//
// What fails throws nervure::Error. Compiled with -fno-exceptions it prints the message and aborts; the functions that
// begin with `try_` return a status in both cases. What owns something can be moved, and not be copied.

#ifndef NERVURE_HPP
#define NERVURE_HPP

#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

#include "nervure.h"

namespace nervure {

#if defined(__cpp_exceptions)
// What failed, and why.
class Error : public std::runtime_error {
public:
    Error(nervure_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    nervure_status status() const noexcept { return status_; }

private:
    nervure_status status_;
};
#endif

// A truth value of its own in memory, for lists: std::vector<bool> has bits.
struct Bool {
    constexpr Bool(bool value = false) noexcept : value(value) {}
    constexpr operator bool() const noexcept { return value; }

    bool value;
};

namespace detail {

[[noreturn]] inline void fail(nervure_status status, const char *message) {
#if defined(__cpp_exceptions)
    throw Error(status, message);
#else
    (void)status;
    std::fprintf(stderr, "ERROR %s\n", message);
    std::abort();
#endif
}

[[noreturn]] inline void mismatch(const char *what, const std::string &expected, const std::string &found) {
    fail(NERVURE_STATUS_KIND, (std::string(what) + ": expected " + expected + ", got " + found).c_str());
}

inline const char *name_of_kind(unsigned int kind) noexcept {
    static const char *const names[] = {"bytes",   "a text",   "a boolean", "an integer", "an integer above INT64_MAX",
                                        "a number", "a tensor", "an Arrow array or a record (nervure::read, nervure::Record)"};
    return kind < sizeof(names) / sizeof(*names) ? names[kind] : "a value of a later version";
}

inline const char *name_of_dtype(unsigned int dtype) noexcept {
    static const char *const names[] = {"bool", "i8",  "i16",  "i32", "i64", "u8",  "u16", "u32",
                                        "u64",  "f16", "bf16", "f32", "f64", "c64", "c128"};
    return dtype < sizeof(names) / sizeof(*names) ? names[dtype] : "a type of another language";
}

inline void check(nervure_status status) {
    if (status != NERVURE_STATUS_OK) {
        fail(status, nervure_error());
    }
}

inline std::int64_t nanos(std::chrono::nanoseconds duration) { return duration.count() < 0 ? 0 : duration.count(); }

struct Free {
    void operator()(nervure_node *node) const noexcept { nervure_disconnect(node); }
    void operator()(nervure_sample *sample) const noexcept { nervure_sample_free(sample); }
    void operator()(nervure_request *request) const noexcept { nervure_request_free(request); }
    void operator()(nervure_metadata *metadata) const noexcept { nervure_metadata_free(metadata); }
    void operator()(nervure_loan *loan) const noexcept { nervure_loan_free(loan); }
    void operator()(nervure_record *record) const noexcept { nervure_record_free(record); }
};

template <typename T> using Owned = std::unique_ptr<T, Free>;

template <typename T> constexpr nervure_dtype dtype_of() {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, Bool>) {
        return NERVURE_DTYPE_BOOL;
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
        return NERVURE_DTYPE_C64;
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
        return NERVURE_DTYPE_C128;
    } else if constexpr (std::is_same_v<T, float>) {
        return NERVURE_DTYPE_F32;
    } else if constexpr (std::is_same_v<T, double>) {
        return NERVURE_DTYPE_F64;
    } else {
        static_assert(std::is_integral_v<T> && sizeof(T) <= 8, "a tensor has no elements of this type");
        constexpr bool is_signed = std::is_signed_v<T>;
        switch (sizeof(T)) {
        case 1:
            return is_signed ? NERVURE_DTYPE_I8 : NERVURE_DTYPE_U8;
        case 2:
            return is_signed ? NERVURE_DTYPE_I16 : NERVURE_DTYPE_U16;
        case 4:
            return is_signed ? NERVURE_DTYPE_I32 : NERVURE_DTYPE_U32;
        default:
            return is_signed ? NERVURE_DTYPE_I64 : NERVURE_DTYPE_U64;
        }
    }
}

template <typename Integer> nervure_value from_integer(Integer value) noexcept {
    if constexpr (std::is_unsigned_v<Integer>) {
        return nervure_from_unsigned(value);
    } else {
        return nervure_from_integer(value);
    }
}

// The items of a text, a list or an optional value, for a nervure_layout.
template <typename Container> const void *items(const void *place, std::size_t *count) noexcept {
    const Container &container = *static_cast<const Container *>(place);
    *count = container.size();
    return container.data();
}

template <typename T> const void *optional_item(const void *place, std::size_t *count) noexcept {
    const std::optional<T> &value = *static_cast<const std::optional<T> *>(place);
    *count = value.has_value() ? 1 : 0;
    return value.has_value() ? &*value : nullptr;
}

// Runs what may throw. Returns NULL if it does.
template <typename Run> void *caught(Run run) noexcept {
#if defined(__cpp_exceptions)
    try {
        return run();
    } catch (...) {
        return nullptr;
    }
#else
    return run();
#endif
}

template <typename Container> void *resize(void *place, std::size_t count) noexcept {
    return caught([&]() -> void * {
        Container &container = *static_cast<Container *>(place);
        container.resize(count);
        return container.data();
    });
}

template <typename T> void *resize_optional(void *place, std::size_t count) noexcept {
    return caught([&]() -> void * {
        std::optional<T> &value = *static_cast<std::optional<T> *>(place);
        if (count == 0) {
            value.reset();
            return nullptr;
        }
        return value.has_value() ? &*value : &value.emplace();
    });
}

// Whether a type is a struct of `nervure types generate`, or of the same form.
template <typename T, typename = void> struct IsStruct : std::false_type {};
template <typename T> struct IsStruct<T, std::void_t<decltype(T::nervure_type)>> : std::true_type {};

// The description of a type for the library, which is made once.
template <typename T> const nervure_layout *layout_of();

template <typename T> struct LayoutOf {
    static constexpr bool is_number = std::is_arithmetic_v<T> || std::is_same_v<T, Bool>;
    static_assert(IsStruct<T>::value || is_number,
                  "records have numbers, std::string, std::array, std::vector, std::optional, and structs with "
                  "`nervure_type` and `visit`, as `nervure types generate` prints them");

    static nervure_layout make() {
        nervure_layout layout = {};
        layout.size = sizeof(T);
        if constexpr (is_number) {
            layout.kind = NERVURE_LAYOUT_KIND_NUMBER;
            layout.dtype = dtype_of<T>();
        } else {
            // Never destroyed: other threads may send while the program ends.
            static const std::vector<nervure_field> &fields = *new std::vector<nervure_field>(fields_of());
            layout.kind = NERVURE_LAYOUT_KIND_RECORD;
            layout.name = T::nervure_type.data();
            layout.count = fields.size();
            layout.fields = fields.data();
        }
        return layout;
    }

private:
    struct Visitor {
        const T &value;
        std::vector<nervure_field> fields;

        template <typename Field> void operator()(const char *name, const Field &field) {
            const char *const place = reinterpret_cast<const char *>(&field);
            const std::ptrdiff_t offset = place - reinterpret_cast<const char *>(&value);
            fields.push_back({name, layout_of<Field>(), static_cast<std::size_t>(offset)});
        }
    };

    static std::vector<nervure_field> fields_of() {
        const T value{};
        Visitor visitor{value, {}};
        T::visit(value, visitor);
        return visitor.fields;
    }
};

template <> struct LayoutOf<std::string> {
    static nervure_layout make() {
        nervure_layout layout = {};
        layout.kind = NERVURE_LAYOUT_KIND_TEXT;
        layout.size = sizeof(std::string);
        layout.items = items<std::string>;
        layout.resize = resize<std::string>;
        return layout;
    }
};

template <typename T, std::size_t count> struct LayoutOf<std::array<T, count>> {
    static nervure_layout make() {
        nervure_layout layout = {};
        layout.kind = NERVURE_LAYOUT_KIND_ARRAY;
        layout.size = sizeof(std::array<T, count>);
        layout.count = count;
        layout.item = layout_of<T>();
        return layout;
    }
};

template <typename T> struct LayoutOf<std::vector<T>> {
    static_assert(!std::is_same_v<T, bool>, "a list of truth values is a std::vector<nervure::Bool>");

    static nervure_layout make() {
        nervure_layout layout = {};
        layout.kind = NERVURE_LAYOUT_KIND_LIST;
        layout.size = sizeof(std::vector<T>);
        layout.item = layout_of<T>();
        layout.items = items<std::vector<T>>;
        layout.resize = resize<std::vector<T>>;
        return layout;
    }
};

template <typename T> struct LayoutOf<std::optional<T>> {
    static nervure_layout make() {
        nervure_layout layout = {};
        layout.kind = NERVURE_LAYOUT_KIND_OPTIONAL;
        layout.size = sizeof(std::optional<T>);
        layout.item = layout_of<T>();
        layout.items = optional_item<T>;
        layout.resize = resize_optional<T>;
        return layout;
    }
};

template <typename T> const nervure_layout *layout_of() {
    static const nervure_layout layout = LayoutOf<T>::make();
    return &layout;
}

template <typename Lengths> std::size_t product(const Lengths &lengths) noexcept {
    std::size_t size = 1;
    for (const std::size_t length : lengths) {
        size *= length;
    }
    return size;
}

} // namespace detail

// Consecutive elements, not owned.
template <typename T> class Span {
public:
    constexpr Span() noexcept = default;
    constexpr Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <typename Container, typename = decltype(std::declval<Container &>().data())>
    constexpr Span(Container &container) noexcept : data_(container.data()), size_(container.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t at) const noexcept { return data_[at]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

// Elements of a received tensor, in place and in C order.
template <typename T> class TensorView : public Span<const T> {
public:
    TensorView(const T *data, std::size_t size, Span<const std::size_t> shape) noexcept
        : Span<const T>(data, size), shape_(shape) {}

    // Length of each dimension.
    Span<const std::size_t> shape() const noexcept { return shape_; }

    // The element at an index with one number a dimension, which are not checked.
    template <typename... Index> const T &operator()(Index... index) const noexcept {
        std::size_t offset = 0, dimension = 0;
        ((offset = offset * shape_[dimension++] + static_cast<std::size_t>(index)), ...);
        return (*this)[offset];
    }

private:
    Span<const std::size_t> shape_;
};

namespace detail {

template <typename T> TensorView<T> tensor_view(const nervure_tensor &tensor) {
    if (tensor.dtype != dtype_of<T>()) {
        mismatch("the elements of the tensor", name_of_dtype(dtype_of<T>()), name_of_dtype(tensor.dtype));
    }
    if (tensor.strides != nullptr) {
        mismatch("the tensor", "one in C order", "one with strides (value() has them)");
    }
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(T);
    if (offset != 0) {
        mismatch("the tensor", "an address that " + std::to_string(alignof(T)) + " divides",
                 "one with the remainder " + std::to_string(offset));
    }
    const Span<const std::size_t> shape(tensor.shape, tensor.dimensions);
    return {static_cast<const T *>(tensor.data), product(shape), shape};
}

} // namespace detail

// Named values that are sent along with a value.
class Metadata {
public:
    Metadata() : metadata_(nervure_metadata_new()) {}
    explicit Metadata(nervure_metadata *owned) noexcept : metadata_(owned) {}

    Metadata &set(const char *key, bool value) { return put(key, nervure_from_bool(value)); }
    Metadata &set(const char *key, double value) { return put(key, nervure_from_number(value)); }
    Metadata &set(const char *key, const char *value) { return put(key, nervure_from_text(value)); }
    Metadata &set(const char *key, std::string_view value) {
        nervure_value text = nervure_from_bytes(value.data(), value.size());
        text.kind = NERVURE_KIND_TEXT;
        return put(key, text);
    }
    template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
    Metadata &set(const char *key, Integer value) {
        return put(key, detail::from_integer(value));
    }

    // The value with a name; empty if there is none.
    std::optional<nervure_value> get(const char *key) const {
        nervure_value value;
        const nervure_status status = nervure_metadata_get(metadata_.get(), key, &value);
        if (status == NERVURE_STATUS_NONE) {
            return std::nullopt;
        }
        detail::check(status);
        return value;
    }

    std::size_t size() const noexcept { return nervure_metadata_count(metadata_.get()); }
    const nervure_metadata *handle() const noexcept { return metadata_.get(); }

private:
    Metadata &put(const char *key, const nervure_value &value) {
        detail::check(nervure_metadata_set(metadata_.get(), key, &value));
        return *this;
    }

    detail::Owned<nervure_metadata> metadata_;
};

// A received sample, not owned: an event's sample is valid until the next event.
class SampleView {
public:
    explicit SampleView(const nervure_sample *sample) noexcept : sample_(sample) {}

    // The value in place, of any kind.
    nervure_value value() const {
        nervure_value value;
        detail::check(nervure_sample_value(sample_, &value));
        return value;
    }

    // The payload's bytes, for any value.
    Span<const std::byte> bytes() const {
        nervure_bytes bytes;
        detail::check(nervure_sample_bytes(sample_, &bytes));
        return {static_cast<const std::byte *>(bytes.data), bytes.size};
    }

    // The value of a text, in place.
    std::string_view text() const {
        const nervure_value found = value();
        expect(found, NERVURE_KIND_TEXT, "a text");
        return {static_cast<const char *>(found.as.bytes.data), found.as.bytes.size};
    }

    std::int64_t integer() const {
        const nervure_value found = value();
        expect(found, NERVURE_KIND_INTEGER, "an integer");
        return found.as.integer;
    }

    // The value of a number or an integer.
    double number() const {
        const nervure_value found = value();
        if (found.kind == NERVURE_KIND_INTEGER) {
            return static_cast<double>(found.as.integer);
        }
        expect(found, NERVURE_KIND_FLOAT, "a number");
        return found.as.number;
    }

    // The elements of a tensor, in place.
    template <typename T> TensorView<T> tensor() const {
        const nervure_value found = value();
        expect(found, NERVURE_KIND_TENSOR, "a tensor");
        return detail::tensor_view<T>(found.as.tensor);
    }

    nervure_info info() const {
        nervure_info info;
        detail::check(nervure_sample_info(sample_, &info));
        return info;
    }

    Metadata metadata() const {
        nervure_metadata *metadata;
        detail::check(nervure_sample_metadata(sample_, &metadata));
        return Metadata(metadata);
    }

    const nervure_sample *handle() const noexcept { return sample_; }

private:
    static void expect(const nervure_value &value, nervure_kind kind, const char *what) {
        if (value.kind != kind) {
            detail::mismatch("the sample", what, detail::name_of_kind(value.kind));
        }
    }

    const nervure_sample *sample_;
};

// Reads a record into a struct of `nervure types generate`, or a part of it: fields that the struct does not have are
// ignored. What `value` has reserved is used again.
template <typename T> void read(SampleView sample, T &value) {
    detail::check(nervure_sample_read(sample.handle(), detail::layout_of<T>(), &value));
}
template <typename T> T read(SampleView sample) {
    T value{};
    read(sample, value);
    return value;
}

// A received record, whose values are read by paths such as `pose.position.x`, `poses[3].position` or `covariance[8]`:
// for records without a struct. It keeps the sample's memory until it is destroyed.
class Record {
public:
    explicit Record(SampleView sample) {
        nervure_record *record;
        detail::check(nervure_record_open(sample.handle(), &record));
        record_.reset(record);
    }

    // The value at a path: a number, std::string, std::array, std::vector or struct. A std::optional may be absent.
    template <typename T> T get(const std::string &path) const {
        T value{};
        detail::check(nervure_record_read(record_.get(), path.c_str(), detail::layout_of<T>(), &value));
        return value;
    }

    // The tensor or list of numbers at a path, in place.
    template <typename T> TensorView<T> tensor(const std::string &path) const {
        nervure_tensor tensor;
        detail::check(nervure_record_tensor(record_.get(), path.c_str(), &tensor));
        return detail::tensor_view<T>(tensor);
    }

    // The number of items of the list at a path.
    std::size_t count(const std::string &path) const {
        std::size_t count;
        detail::check(nervure_record_count(record_.get(), path.c_str(), &count));
        return count;
    }

    nervure_record *handle() const noexcept { return record_.get(); }

private:
    detail::Owned<nervure_record> record_;
};

// A received sample that outlives its event. It keeps its producer's memory until it is destroyed.
class Sample {
public:
    explicit Sample(nervure_sample *owned) noexcept : sample_(owned) {}
    explicit Sample(SampleView view) : sample_(nervure_sample_keep(view.handle())) {}

    SampleView view() const noexcept { return SampleView(sample_.get()); }
    SampleView operator*() const noexcept { return view(); }

    // A copy in private memory.
    Sample copied() const { return Sample(nervure_sample_copy(sample_.get())); }

private:
    detail::Owned<nervure_sample> sample_;
};

// Time, frame, trace and metadata of a sent value. It holds references to its parts.
class Envelope {
public:
    Envelope &stamp(std::int64_t nanos) noexcept { return envelope_.stamp = nanos, *this; }
    Envelope &like(SampleView sample) noexcept { return envelope_.like = sample.handle(), *this; }
    Envelope &metadata(const Metadata &metadata) noexcept { return envelope_.metadata = metadata.handle(), *this; }
    Envelope &frame(const char *name) noexcept { return envelope_.frame = name, *this; }

    const nervure_envelope *get() const noexcept { return &envelope_; }

private:
    nervure_envelope envelope_ = {0, nullptr, nullptr, nullptr};
};

// A value to be sent. It refers to its data.
class Value {
public:
    Value(bool value) noexcept : value_(nervure_from_bool(value)) {}
    Value(double value) noexcept : value_(nervure_from_number(value)) {}
    template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
    Value(Integer value) noexcept : value_(detail::from_integer(value)) {}
    Value(const char *text) noexcept : value_(nervure_from_text(text)) {}
    Value(std::string_view text) noexcept : value_(nervure_from_bytes(text.data(), text.size())) {
        value_.kind = NERVURE_KIND_TEXT;
    }
    Value(const std::string &text) noexcept : Value(std::string_view(text)) {}
    Value(Span<const std::byte> bytes) noexcept : value_(nervure_from_bytes(bytes.data(), bytes.size())) {}
    explicit Value(const nervure_value &value) noexcept : value_(value) {}
    // A struct of `nervure types generate`: a record.
    template <typename T, typename = std::enable_if_t<detail::IsStruct<T>::value>, typename = void>
    Value(const T &value) : value_(nervure_from_struct(detail::layout_of<T>(), &value)) {}

    const nervure_value *get() const noexcept { return &value_; }

private:
    nervure_value value_;
};

// Shared memory for a tensor, which is filled in place, and then sent without a copy.
template <typename T> class Loan : public Span<T> {
public:
    Loan(T *data, std::size_t size, nervure_loan *owned) noexcept : Span<T>(data, size), loan_(owned) {}

    void send(const Envelope &envelope = {}) && { detail::check(nervure_loan_send(loan_.release(), envelope.get())); }

private:
    detail::Owned<nervure_loan> loan_;
};

// An output of a node. It belongs to the node; any thread may send with it.
class Output {
public:
    explicit Output(const nervure_output *output) noexcept : output_(output) {}

    // Sends a value. While the queue of a `block` edge is full this waits.
    void send(const Value &value, const Envelope &envelope = {}) const { detail::check(try_send(value, envelope)); }
    nervure_status try_send(const Value &value, const Envelope &envelope = {}) const noexcept {
        return nervure_send(output_, value.get(), envelope.get());
    }

    // Sends a tensor of the elements of a vector, an array or a Span, in C order.
    template <typename Elements>
    void send_tensor(const Elements &elements, std::initializer_list<std::size_t> shape, const Envelope &envelope = {}) const {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(elements.data())>>;
        if (detail::product(shape) != elements.size()) {
            const std::string expected = std::to_string(detail::product(shape));
            const std::string found = std::to_string(elements.size());
            detail::fail(NERVURE_STATUS_ARGUMENT, ("the shape has " + expected + " elements, got " + found).c_str());
        }
        send(Value(nervure_from_tensor(detail::dtype_of<T>(), shape.size(), shape.begin(), elements.data())), envelope);
    }

    // Borrows shared memory for a tensor in C order.
    template <typename T> Loan<T> loan(std::initializer_list<std::size_t> shape) const {
        const nervure_value value = nervure_from_tensor(detail::dtype_of<T>(), shape.size(), shape.begin(), nullptr);
        void *memory;
        nervure_loan *loan;
        detail::check(nervure_borrow(output_, &value, &memory, &loan));
        return Loan<T>(static_cast<T *>(memory), detail::product(shape), loan);
    }

private:
    const nervure_output *output_;
};

// A request of another node. If it is destroyed without an answer, the caller is notified.
class Request {
public:
    explicit Request(const nervure_request *request) : request_(nervure_request_keep(request)) {}

    void reply(const Value &value) const { detail::check(nervure_reply(request_.get(), value.get())); }
    void fail(const char *reason) const { detail::check(nervure_fail(request_.get(), reason)); }

private:
    detail::Owned<nervure_request> request_;
};

// An event. It is valid until the next one; false if there is none.
class Event {
public:
    Event() noexcept = default;
    explicit Event(const nervure_event &event) noexcept : event_(event) {}

    explicit operator bool() const noexcept { return event_.has_value(); }

    nervure_event_kind kind() const noexcept { return event_->kind; }
    std::string_view id() const noexcept { return event_->id; }
    std::string_view text() const noexcept { return event_->text; }

    bool is_input(std::string_view input) const noexcept { return is(NERVURE_EVENT_KIND_INPUT, input); }
    bool is_tick(std::string_view input) const noexcept { return is(NERVURE_EVENT_KIND_TICK, input); }
    bool is_request(std::string_view service) const noexcept { return is(NERVURE_EVENT_KIND_REQUEST, service); }
    bool is_stop() const noexcept { return kind() == NERVURE_EVENT_KIND_STOP; }

    // The sample of an input or a request.
    SampleView sample() const {
        if (event_->sample == nullptr) {
            detail::fail(NERVURE_STATUS_ARGUMENT, "the event has no sample");
        }
        return SampleView(event_->sample);
    }

    // Of an event NERVURE_EVENT_KIND_SYNC, the sample of an input; of a collected input that with this index.
    SampleView sample(const char *input, std::size_t index = 0) const {
        const nervure_sample *sample = nervure_set_sample(event_->set, input, index);
        if (sample == nullptr) {
            detail::fail(NERVURE_STATUS_ARGUMENT, "the event has no such sample");
        }
        return SampleView(sample);
    }

    // Of an event NERVURE_EVENT_KIND_SYNC, the number of samples of an input.
    std::size_t count(const char *input) const noexcept { return nervure_set_count(event_->set, input); }

    bool is_sync() const noexcept { return kind() == NERVURE_EVENT_KIND_SYNC; }

    // Answers a request at once. To answer it later, keep a Request of get().request.
    void reply(const Value &value) const { detail::check(nervure_reply(event_->request, value.get())); }

    const nervure_event &get() const noexcept { return *event_; }

private:
    bool is(nervure_event_kind kind, std::string_view id) const noexcept {
        return event_->kind == kind && id == event_->id;
    }

    std::optional<nervure_event> event_;
};

// A node of a running dataflow. One thread at a time may receive with it; any thread may send with its outputs.
class Node {
public:
    // Connects to the keeper that started this program.
    static Node connect() {
        nervure_node *node;
        detail::check(nervure_connect(&node));
        return Node(node);
    }

    // Connects a component over the control socket that its host was given: NERVURE_COMPONENT calls it.
    static Node component(int control) {
        nervure_node *node;
        detail::check(nervure_component_connect(control, &node));
        return Node(node);
    }

    // Joins a running dataflow as its node with that id, which has `path: dynamic` in the file.
    static Node join(const char *id, const char *dataflow = nullptr) {
        nervure_node *node;
        detail::check(nervure_join(dataflow, id, &node));
        return Node(node);
    }

    // Waits for the next event. Returns false after the last one, which is that with the kind STOP.
    Event next() { return next_within(-1); }

    // Waits at most for `timeout`. Returns false after the timeout, too; then has_ended() is false.
    Event next_for(std::chrono::nanoseconds timeout) { return next_within(detail::nanos(timeout)); }

    // Whether the last event was delivered.
    bool has_ended() const noexcept { return has_ended_; }

    Output output(const char *name) const {
        const nervure_output *output;
        detail::check(nervure_find_output(node_.get(), name, &output));
        return Output(output);
    }

    // The newest sample of an input, without waiting.
    std::optional<Sample> latest(const char *input) {
        nervure_sample *sample;
        const nervure_status status = nervure_latest(node_.get(), input, &sample);
        if (status == NERVURE_STATUS_NONE) {
            return std::nullopt;
        }
        detail::check(status);
        return Sample(sample);
    }

    // Sends a request to a service, and waits for its answer.
    Sample call(const char *client, const Value &value) { return call_within(client, value, -1); }
    Sample call(const char *client, const Value &value, std::chrono::nanoseconds timeout) {
        return call_within(client, value, detail::nanos(timeout));
    }

    // The pose of the frame `source` in the frame `target` at a time in nanoseconds since the Unix epoch; 0 for the newest.
    // Waits for a transform that has not come.
    nervure_transform lookup(const char *target, const char *source, std::int64_t time = 0,
                             std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0)) {
        nervure_transform transform;
        detail::check(
            nervure_transform_lookup(node_.get(), target, source, time, detail::nanos(timeout), &transform));
        return transform;
    }

    // The current value of a parameter. A text is valid until the next event or parameter.
    nervure_value param(const char *name) {
        nervure_value value;
        detail::check(nervure_param(node_.get(), name, &value));
        return value;
    }

    std::string_view id() const noexcept { return nervure_node_id(node_.get()); }
    std::string_view dataflow() const noexcept { return nervure_node_dataflow(node_.get()); }
    std::int64_t now() const noexcept { return nervure_now(node_.get()); }
    bool is_paused() const noexcept { return nervure_is_paused(node_.get()); }
    bool is_stopping() const noexcept { return nervure_is_stopping(node_.get()); }
    nervure_node *handle() const noexcept { return node_.get(); }

private:
    explicit Node(nervure_node *owned) noexcept : node_(owned) {}

    Event next_within(std::int64_t timeout) {
        nervure_event event;
        const nervure_status status = nervure_next(node_.get(), timeout, &event);
        has_ended_ = status == NERVURE_STATUS_END;
        if (has_ended_ || status == NERVURE_STATUS_TIMEOUT) {
            return Event();
        }
        detail::check(status);
        return Event(event);
    }

    Sample call_within(const char *client, const Value &value, std::int64_t timeout) {
        nervure_sample *answer;
        detail::check(nervure_call(node_.get(), client, value.get(), timeout, &answer));
        return Sample(answer);
    }

    detail::Owned<nervure_node> node_;
    bool has_ended_ = false;
};

namespace detail {

// The entry of a component: an exception is the end of its node, and not of the process.
template <typename Run> int component(int control, char *reason, std::size_t capacity, Run run) {
#if defined(__cpp_exceptions)
    try {
        run(Node::component(control));
        return 0;
    } catch (const std::exception &error) {
        nervure_component_reason(reason, capacity, error.what());
    } catch (...) {
        nervure_component_reason(reason, capacity, "an exception that is no std::exception");
    }
    return 1;
#else
    (void)reason;
    (void)capacity;
    run(Node::component(control));
    return 0;
#endif
}

} // namespace detail

} // namespace nervure

// Makes a shared library a component: a node that shares a process with the nodes that have the same `process` in the
// dataflow file, or runs alone. `run` takes a nervure::Node, on a thread of the node's own. An exception is a failure.
#undef NERVURE_COMPONENT
#define NERVURE_COMPONENT(run)                                                                                         \
    extern "C" __attribute__((visibility("default"))) int nervure_component_v1(int control, char *reason,              \
                                                                               std::size_t capacity) {                 \
        return nervure::detail::component(control, reason, capacity, run);                                             \
    }

#endif // NERVURE_HPP
