// The messages of nervure_lab/messages.py, in the types that Cyclone's compiler of IDL writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <dds/dds.h>

#include "../endpoint/cpp/endpoint.hpp"
#include "messages.h"

// A type of messages with room for the header in its first octets.
class MessageType {
public:
    virtual ~MessageType() = default;
    virtual const dds_topic_descriptor_t* descriptor() const = 0;
    // Returns the sample of this source, with the stamp in it.
    virtual const void* stamped(lab::Bytes& source, const lab::Stamp& stamp) = 0;
    // Passes on the octets of a received sample: all of bytes, the header's of other types.
    virtual void pass_on(const void* sample, const lab::OnMessage& on_message) const = 0;
};

class BytesType : public MessageType {
public:
    const dds_topic_descriptor_t* descriptor() const override { return &Bytes_desc; }

    const void* stamped(lab::Bytes& source, const lab::Stamp& stamp) override {
        stamp(source.data());
        const auto size = static_cast<std::uint32_t>(source.size());
        sent_ = {{size, size, source.data(), false}};
        return &sent_;
    }

    void pass_on(const void* sample, const lab::OnMessage& on_message) const override {
        const auto& payload = static_cast<const Bytes*>(sample)->payload;
        on_message(payload._buffer, payload._length);
    }

private:
    Bytes sent_{};
};

using HeaderOctets = std::array<std::uint8_t, sizeof(lab::Header)>;

// A struct. The header is in the octets of its first two `Struct16`.
template <typename Sample>
class StructType : public MessageType {
public:
    explicit StructType(const dds_topic_descriptor_t& descriptor) : descriptor_(descriptor) {}
    const dds_topic_descriptor_t* descriptor() const override { return &descriptor_; }

    const void* stamped(lab::Bytes&, const lab::Stamp& stamp) override {
        HeaderOctets head{};
        stamp(head.data());
        for (std::size_t index = 0; index < head.size(); ++index) {
            reinterpret_cast<std::uint8_t*>(&sent_)[place(index)] = head[index];
        }
        return &sent_;
    }

    void pass_on(const void* sample, const lab::OnMessage& on_message) const override {
        HeaderOctets head{};
        for (std::size_t index = 0; index < head.size(); ++index) {
            head[index] = static_cast<const std::uint8_t*>(sample)[place(index)];
        }
        on_message(head.data(), head.size());
    }

private:
    static constexpr std::size_t OCTETS = 16;
    static_assert(offsetof(Struct16, struct0) == 0 && offsetof(Struct16, structf) == OCTETS - 1);
    static_assert(offsetof(Struct256, struct161) == sizeof(Struct16));

    static std::size_t place(std::size_t index) { return index / OCTETS * sizeof(Struct16) + index % OCTETS; }

    const dds_topic_descriptor_t& descriptor_;
    Sample sent_{};
};

// A point cloud. The header is in its first points.
template <typename Sample>
class PointCloudType : public MessageType {
public:
    explicit PointCloudType(const dds_topic_descriptor_t& descriptor) : descriptor_(descriptor) {
        constexpr std::uint8_t FLOAT32 = 7;
        constexpr std::uint32_t POINT_BYTES = 32;
        static std::array<char[10], 8> names{"x", "y", "z", "intensity", "ring", "time", "u", "v"};
        static char frame[] = "lidar";
        sent_->header.frame_id = frame;
        sent_->height = 1;
        sent_->width = sizeof sent_->data / POINT_BYTES;
        for (std::uint32_t at = 0; at < names.size(); ++at) {
            sent_->fields[at] = {names[at], 4 * at, FLOAT32, 1};
        }
        sent_->point_step = POINT_BYTES;
        sent_->row_step = sizeof sent_->data;
        sent_->is_dense = true;
    }
    const dds_topic_descriptor_t* descriptor() const override { return &descriptor_; }

    const void* stamped(lab::Bytes&, const lab::Stamp& stamp) override {
        stamp(sent_->data);
        return sent_.get();
    }

    void pass_on(const void* sample, const lab::OnMessage& on_message) const override {
        on_message(static_cast<const Sample*>(sample)->data, sizeof(lab::Header));
    }

private:
    const dds_topic_descriptor_t& descriptor_;
    // Not a member: it may be larger than a stack.
    std::unique_ptr<Sample> sent_ = std::make_unique<Sample>();
};

// The type that a case names.
inline std::unique_ptr<MessageType> type_of(const std::string& message, std::size_t size) {
    if (message == "struct") {
        if (size == 256) {
            return std::make_unique<StructType<Struct256>>(Struct256_desc);
        }
        return std::make_unique<StructType<Struct4k>>(Struct4k_desc);
    }
    if (message == "point-cloud") {
        switch (size) {
        case sizeof PointCloud512k::data:
            return std::make_unique<PointCloudType<PointCloud512k>>(PointCloud512k_desc);
        case sizeof PointCloud1m::data:
            return std::make_unique<PointCloudType<PointCloud1m>>(PointCloud1m_desc);
        case sizeof PointCloud2m::data:
            return std::make_unique<PointCloudType<PointCloud2m>>(PointCloud2m_desc);
        case sizeof PointCloud4m::data:
            return std::make_unique<PointCloudType<PointCloud4m>>(PointCloud4m_desc);
        case sizeof PointCloud8m::data:
            return std::make_unique<PointCloudType<PointCloud8m>>(PointCloud8m_desc);
        default:
            std::cerr << "error: expected a point cloud of 512 KiB or 1, 2, 4 or 8 MiB, got " << size << " bytes\n";
            std::exit(1);
        }
    }
    return std::make_unique<BytesType>();
}
