// The messages of nervure_lab/messages.py, serialised member by member with Fast CDR as the compiler of IDL
// writes it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>

#include "bytes_type.hpp"

struct Struct16 {
    static constexpr std::size_t OCTETS = 16;
    // `struct0` to `structf`
    std::array<std::uint8_t, OCTETS> octets{};
    double time = 0;
    std::uint64_t id = 0;

    template <typename Cdr, typename Pass>
    void pass(Cdr& cdr, Pass pass) {
        for (auto& octet : octets) {
            pass(cdr, octet);
        }
        pass(cdr, time);
        pass(cdr, id);
    }

    std::uint8_t* octet(std::size_t index) { return &octets[index]; }
};

template <typename Part>
struct StructOf {
    static constexpr std::size_t PARTS = 16;
    static constexpr std::size_t OCTETS = PARTS * Part::OCTETS;
    std::array<Part, PARTS> parts{};
    double time = 0;
    std::uint64_t id = 0;

    StructOf() = default;
    explicit StructOf(std::size_t) {}

    template <typename Cdr, typename Pass>
    void pass(Cdr& cdr, Pass pass) {
        for (auto& part : parts) {
            part.pass(cdr, pass);
        }
        pass(cdr, time);
        pass(cdr, id);
    }

    std::uint8_t* octet(std::size_t index) { return parts[index / Part::OCTETS].octet(index % Part::OCTETS); }
    static constexpr std::size_t size_limit(std::size_t) { return sizeof(StructOf) + 8; }
};

using Struct256 = StructOf<Struct16>;
using Struct4k = StructOf<Struct256>;

struct PointCloud {
    struct Field {
        std::string name;
        std::uint32_t offset;
        std::uint8_t datatype;
        std::uint32_t count;
    };

    static constexpr std::uint8_t FLOAT32 = 7;
    static constexpr std::uint32_t POINT_BYTES = 32;
    std::int32_t seconds = 0;
    std::uint32_t nanos = 0;
    std::string frame = "lidar";
    std::uint32_t height = 1, width, point_step = POINT_BYTES, row_step;
    std::array<Field, 8> fields{{{"x", 0, FLOAT32, 1}, {"y", 4, FLOAT32, 1}, {"z", 8, FLOAT32, 1},
        {"intensity", 12, FLOAT32, 1}, {"ring", 16, FLOAT32, 1}, {"time", 20, FLOAT32, 1}, {"u", 24, FLOAT32, 1},
        {"v", 28, FLOAT32, 1}}};
    bool is_bigendian = false, is_dense = true;
    std::vector<std::uint8_t> data;
    double time = 0;
    std::uint64_t id = 0;

    explicit PointCloud(std::size_t size)
        : width(static_cast<std::uint32_t>(size / POINT_BYTES)), row_step(static_cast<std::uint32_t>(size)), data(size) {}

    template <typename Cdr, typename Pass>
    void pass(Cdr& cdr, Pass pass) {
        pass(cdr, seconds);
        pass(cdr, nanos);
        pass(cdr, frame);
        pass(cdr, height);
        pass(cdr, width);
        for (auto& field : fields) {
            pass(cdr, field.name);
            pass(cdr, field.offset);
            pass(cdr, field.datatype);
            pass(cdr, field.count);
        }
        pass(cdr, is_bigendian);
        pass(cdr, point_step);
        pass(cdr, row_step);
        // As an array of a fixed length: without the length.
        pass(cdr, data);
        pass(cdr, is_dense);
        pass(cdr, time);
        pass(cdr, id);
    }

    std::uint8_t* octet(std::size_t index) { return &data[index]; }
    static constexpr std::size_t size_limit(std::size_t size) { return size + 512; }
};

// A type whose samples have the size of the case.
template <typename Sample>
class CdrType : public MessageType {
public:
    CdrType(const char* name, std::size_t size) : size_(size), sent_(size) {
        setName(name);
        m_typeSize = static_cast<std::uint32_t>(Sample::size_limit(size));
        m_isGetKeyDefined = false;
    }

    bool serialize(void* data, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override {
        eprosima::fastcdr::FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
        eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::DEFAULT_ENDIAN, eprosima::fastcdr::Cdr::DDS_CDR);
        payload->encapsulation = cdr.endianness() == eprosima::fastcdr::Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
        try {
            cdr.serialize_encapsulation();
            static_cast<Sample*>(data)->pass(cdr, [](auto& to, auto& member) { write(to, member); });
        } catch (const eprosima::fastcdr::exception::Exception&) {
            return false;
        }
        payload->length = static_cast<std::uint32_t>(cdr.getSerializedDataLength());
        return true;
    }

    bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* data) override {
        eprosima::fastcdr::FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
        eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::DEFAULT_ENDIAN, eprosima::fastcdr::Cdr::DDS_CDR);
        try {
            cdr.read_encapsulation();
            static_cast<Sample*>(data)->pass(cdr, [](auto& from, auto& member) { read(from, member); });
        } catch (const eprosima::fastcdr::exception::Exception&) {
            return false;
        }
        return true;
    }

    std::function<std::uint32_t()> getSerializedSizeProvider(void*) override {
        return [this] { return m_typeSize; };
    }

    void* createData() override { return new Sample(size_); }
    void deleteData(void* data) override { delete static_cast<Sample*>(data); }
    bool getKey(void*, eprosima::fastrtps::rtps::InstanceHandle_t*, bool) override { return false; }

    void* stamped(lab::Bytes&, const lab::Stamp& stamp) override {
        Octets head{};
        stamp(head.data());
        for (std::size_t index = 0; index < head.size(); ++index) {
            *sent_.octet(index) = head[index];
        }
        return &sent_;
    }

    void pass_on(void* sample, const lab::OnMessage& on_message) override {
        Octets head{};
        for (std::size_t index = 0; index < head.size(); ++index) {
            head[index] = *static_cast<Sample*>(sample)->octet(index);
        }
        on_message(head.data(), head.size());
    }

private:
    using Octets = std::array<std::uint8_t, sizeof(lab::Header)>;

    template <typename Member>
    static void write(eprosima::fastcdr::Cdr& cdr, const Member& member) {
        cdr << member;
    }
    static void write(eprosima::fastcdr::Cdr& cdr, const std::vector<std::uint8_t>& octets) {
        cdr.serializeArray(octets.data(), octets.size());
    }
    template <typename Member>
    static void read(eprosima::fastcdr::Cdr& cdr, Member& member) {
        cdr >> member;
    }
    static void read(eprosima::fastcdr::Cdr& cdr, std::vector<std::uint8_t>& octets) {
        cdr.deserializeArray(octets.data(), octets.size());
    }

    std::size_t size_;
    Sample sent_;
};

// The type that a case names.
inline MessageType* type_of(const std::string& message, std::size_t size) {
    if (message == "point-cloud") {
        return new CdrType<PointCloud>("PointCloud", size);
    }
    if (message == "struct") {
        return size == Struct256::OCTETS ? static_cast<MessageType*>(new CdrType<Struct256>("Struct256", size))
                                         : new CdrType<Struct4k>("Struct4k", size);
    }
    return new BytesType(size);
}
