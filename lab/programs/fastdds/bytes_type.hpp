#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include <fastdds/dds/topic/TopicDataType.hpp>

// A type of messages with room for a header in its first octets.
class MessageType : public eprosima::fastdds::dds::TopicDataType {
public:
    // Returns a sample with this many octets, if the type has no size of its own.
    virtual void* create(std::size_t size) = 0;
    virtual void write_head(void* sample, const void* head, std::size_t size) = 0;
    // Returns false for a sample that is too small.
    virtual bool read_head(void* sample, void* head, std::size_t size) = 0;
};

// A sequence of bytes in plain CDR, as IDL's `sequence<octet>`.
class BytesType : public MessageType {
public:
    using Bytes = std::vector<std::uint8_t>;

    explicit BytesType(std::size_t payload_bytes) {
        setName("Bytes");
        m_typeSize = static_cast<std::uint32_t>(payload_bytes + 8);
        m_isGetKeyDefined = false;
    }

    bool serialize(void* data, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override {
        const auto& bytes = *static_cast<Bytes*>(data);
        const std::uint8_t head[4] = {0, 1, 0, 0};
        const auto length = static_cast<std::uint32_t>(bytes.size());
        std::memcpy(payload->data, head, 4);
        std::memcpy(payload->data + 4, &length, 4);
        std::memcpy(payload->data + 8, bytes.data(), bytes.size());
        payload->encapsulation = CDR_LE;
        payload->length = length + 8;
        return true;
    }

    bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* data) override {
        std::uint32_t length = 0;
        if (payload->length < 8) {
            return false;
        }
        std::memcpy(&length, payload->data + 4, 4);
        if (length > payload->length - 8) {
            return false;
        }
        static_cast<Bytes*>(data)->assign(payload->data + 8, payload->data + 8 + length);
        return true;
    }

    std::function<std::uint32_t()> getSerializedSizeProvider(void* data) override {
        return [data] { return static_cast<std::uint32_t>(static_cast<Bytes*>(data)->size() + 8); };
    }

    void* createData() override { return new Bytes(); }
    void deleteData(void* data) override { delete static_cast<Bytes*>(data); }
    bool getKey(void*, eprosima::fastrtps::rtps::InstanceHandle_t*, bool) override { return false; }

    // With random bytes: compression and shared zero pages would favour some peers.
    void* create(std::size_t size) override {
        auto* bytes = new Bytes(size);
        std::mt19937 random(1);
        for (auto& byte : *bytes) {
            byte = static_cast<std::uint8_t>(random());
        }
        return bytes;
    }

    void write_head(void* sample, const void* head, std::size_t size) override {
        std::memcpy(static_cast<Bytes*>(sample)->data(), head, size);
    }

    bool read_head(void* sample, void* head, std::size_t size) override {
        const auto& bytes = *static_cast<Bytes*>(sample);
        if (bytes.size() < size) {
            return false;
        }
        std::memcpy(head, bytes.data(), size);
        return true;
    }
};
