// Fast DDS endpoint of the declared experiments.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastdds/rtps/transport/shared_mem/SharedMemTransportDescriptor.h>

#include "message_types.hpp"

using namespace eprosima::fastdds::dds;
using eprosima::fastdds::rtps::SharedMemTransportDescriptor;
using eprosima::fastdds::rtps::UDPv4TransportDescriptor;

namespace {

// 1500 bytes less the headers of IP and UDP.
constexpr std::uint32_t MAX_MESSAGE_BYTES = 1472;
constexpr std::uint32_t SOCKET_BUFFER_BYTES = 8 << 20;
constexpr std::uint32_t SEGMENT_BYTES = 32 << 20;

struct Wiring : lab::Wiring {
    explicit Wiring(const lab::Wiring& wiring) : lab::Wiring(wiring) {}

    // The profiles, which Fast DDS loads by itself, then set all QoS.
    bool from_profiles = !settings_file.empty();
    bool tuned = configuration.rfind("tuned", 0) == 0;
    bool synchronous = configuration.find("sync") != std::string::npos && configuration.find("async") == std::string::npos;
};

DomainParticipant* create_participant(const Wiring& wiring) {
    DomainParticipantFactory::get_instance()->load_profiles();
    DomainParticipantQos qos = DomainParticipantFactory::get_instance()->get_default_participant_qos();
    const bool has_builtin = wiring.from_profiles || wiring.configuration == "large-data";
    if (!has_builtin && (wiring.on_link || wiring.tuned)) {
        // Over the link no shared memory, because its hosts share a machine.
        auto udp = std::make_shared<UDPv4TransportDescriptor>();
        if (wiring.tuned) {
            udp->sendBufferSize = udp->receiveBufferSize = SOCKET_BUFFER_BYTES;
            if (wiring.on_link) {
                udp->maxMessageSize = MAX_MESSAGE_BYTES;
            }
        }
        qos.transport().use_builtin_transports = false;
        qos.transport().user_transports.push_back(udp);
        if (!wiring.on_link) {
            auto shared = std::make_shared<SharedMemTransportDescriptor>();
            shared->segment_size(SEGMENT_BYTES);
            shared->max_message_size(SEGMENT_BYTES / 4);
            qos.transport().user_transports.push_back(shared);
        }
    }
    auto* participant = DomainParticipantFactory::get_instance()->create_participant(wiring.domain, qos);
    if (participant == nullptr) {
        std::cerr << "error: Fast DDS created no participant\n";
        std::exit(1);
    }
    return participant;
}

eprosima::fastrtps::Duration_t seconds(double value) {
    const auto whole = static_cast<std::int32_t>(value);
    return {whole, static_cast<std::uint32_t>((value - whole) * 1e9)};
}

// QoS that both ends must agree on.
template <typename Qos>
void set_common_qos(Qos& qos, const Wiring& wiring) {
    qos.reliability().kind = wiring.reliable ? RELIABLE_RELIABILITY_QOS : BEST_EFFORT_RELIABILITY_QOS;
    qos.durability().kind = VOLATILE_DURABILITY_QOS;
    qos.history().kind = wiring.keep_all ? KEEP_ALL_HISTORY_QOS : KEEP_LAST_HISTORY_QOS;
    qos.history().depth = wiring.depth;
    qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
}

class Listener : public DataReaderListener {
public:
    Listener(MessageType& type, lab::OnMessage on_message)
        : type_(type), on_message_(std::move(on_message)), sample_(type.createData()) {}
    ~Listener() override { type_.deleteData(sample_); }

    void on_data_available(DataReader* reader) override {
        SampleInfo info;
        while (reader->take_next_sample(sample_, &info) == ReturnCode_t::RETCODE_OK) {
            if (info.valid_data) {
                type_.pass_on(sample_, on_message_);
            }
        }
    }

private:
    MessageType& type_;
    lab::OnMessage on_message_;
    void* sample_;
};

class Output : public lab::Publisher {
public:
    Output(DataWriter* writer, MessageType& type) : writer_(writer), type_(type) {}
    void publish(lab::Bytes& source, const lab::Stamp& stamp) override { writer_->write(type_.stamped(source, stamp)); }

private:
    DataWriter* writer_;
    MessageType& type_;
};

class FastDds : public lab::Peer {
public:
    explicit FastDds(const lab::Wiring& wiring)
        : wiring_(wiring), participant_(create_participant(wiring_)), type_(type_of(wiring.message, wiring.payload_bytes)) {
        type_.register_type(participant_);
    }

    std::unique_ptr<lab::Publisher> publisher(const char* name) override {
        return std::make_unique<Output>(writer(name), type());
    }

    void receive(const char* name, lab::OnMessage on_message) override {
        listener_ = std::make_unique<Listener>(type(), std::move(on_message));
        reader(name, listener_.get());
    }

private:
    MessageType& type() { return *static_cast<MessageType*>(type_.get()); }

    DataWriter* writer(const char* name) {
        auto* publisher = participant_->create_publisher(PUBLISHER_QOS_DEFAULT);
        if (wiring_.from_profiles) {
            return publisher->create_datawriter(topic(name), DATAWRITER_QOS_DEFAULT);
        }
        DataWriterQos qos;
        set_common_qos(qos, wiring_);
        // A sample larger than a message cannot be sent from the publisher's thread.
        const bool fragments = wiring_.payload_bytes + 200 > (wiring_.tuned && wiring_.on_link ? MAX_MESSAGE_BYTES : 65000);
        qos.publish_mode().kind =
            wiring_.synchronous && !fragments ? SYNCHRONOUS_PUBLISH_MODE : ASYNCHRONOUS_PUBLISH_MODE;
        if (wiring_.tuned && wiring_.on_link) {
            auto& times = qos.reliable_writer_qos().times;
            times.heartbeatPeriod = seconds(1 / (2 * wiring_.rate_hz));
            times.nackResponseDelay = seconds(0);
            times.nackSupressionDuration = seconds(0);
            times.initialHeartbeatDelay = seconds(0);
            // With a heartbeat on every message, the reader would request fragments that are in flight.
            qos.reliable_writer_qos().disable_heartbeat_piggyback = true;
        }
        return publisher->create_datawriter(topic(name), qos);
    }

    void reader(const char* name, DataReaderListener* listener) {
        auto* subscriber = participant_->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
        if (wiring_.from_profiles) {
            subscriber->create_datareader(topic(name), DATAREADER_QOS_DEFAULT, listener);
            return;
        }
        DataReaderQos qos;
        set_common_qos(qos, wiring_);
        if (wiring_.tuned && wiring_.on_link) {
            qos.reliable_reader_qos().times.heartbeatResponseDelay = seconds(0);
            qos.reliable_reader_qos().times.initialAcknackDelay = seconds(0);
        }
        subscriber->create_datareader(topic(name), qos, listener);
    }

    Topic* topic(const char* name) {
        return participant_->create_topic(name, type_.get_type_name(), TOPIC_QOS_DEFAULT);
    }

    const Wiring wiring_;
    DomainParticipant* participant_;
    TypeSupport type_;
    std::unique_ptr<Listener> listener_;
};

}  // namespace

int main() {
    return lab::run([](const lab::Wiring& wiring) { return std::make_unique<FastDds>(wiring); });
}
