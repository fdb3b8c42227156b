#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

#include <fastdds/dds/topic/TopicDataType.hpp>

#include "../endpoint/cpp/endpoint.hpp"

// A type of messages with room for the header in its first octets.
class MessageType : public eprosima::fastdds::dds::TopicDataType {
public:
    // Returns the sample of this source, with the stamp in it.
    virtual void* stamped(lab::Bytes& source, const lab::Stamp& stamp) = 0;
    // Passes on the octets of a received sample: all of bytes, the header's of other types.
    virtual void pass_on(void* sample, const lab::OnMessage& on_message) = 0;
};

// A sequence of bytes in plain CDR, as IDL's `sequence<octet>`.
class BytesType : public MessageType {
public:
    using Bytes = lab::Bytes;

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

    void* stamped(lab::Bytes& source, const lab::Stamp& stamp) override {
        stamp(source.data());
        return &source;
    }

    void pass_on(void* sample, const lab::OnMessage& on_message) override {
        const auto& bytes = *static_cast<Bytes*>(sample);
        on_message(bytes.data(), bytes.size());
    }
};
