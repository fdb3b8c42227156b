// Cyclone DDS endpoint of the declared experiments, with its API for C.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include <dds/dds.h>

#include "message_types.hpp"

namespace {

// Returns a result that is not an error.
dds_return_t checked(dds_return_t result, const char* what) {
    if (result < 0) {
        std::cerr << "error: " << what << ": " << dds_strretcode(result) << "\n";
        std::exit(1);
    }
    return result;
}

class Output : public lab::Publisher {
public:
    Output(dds_entity_t writer, MessageType& type) : writer_(writer), type_(type) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        const dds_return_t result = dds_write(writer_, type_.stamped(source, stamp));
        // A reliable writer whose history is full drops the sample after its blocking time.
        if (result != DDS_RETCODE_TIMEOUT) {
            checked(result, "dds_write");
        }
    }

private:
    dds_entity_t writer_;
    MessageType& type_;
};

class CycloneDds : public lab::Peer {
public:
    explicit CycloneDds(const lab::Wiring& wiring)
        : participant_(checked(dds_create_participant(wiring.domain, nullptr, nullptr), "dds_create_participant")),
          qos_(dds_create_qos()),
          type_(type_of(wiring.message, wiring.payload_bytes)) {
        dds_qset_reliability(qos_, wiring.reliable ? DDS_RELIABILITY_RELIABLE : DDS_RELIABILITY_BEST_EFFORT, DDS_MSECS(100));
        dds_qset_history(qos_, wiring.keep_all ? DDS_HISTORY_KEEP_ALL : DDS_HISTORY_KEEP_LAST, wiring.depth);
    }

    std::unique_ptr<lab::Publisher> publisher(const char* name) override {
        return std::make_unique<Output>(checked(dds_create_writer(participant_, topic(name), qos_, nullptr), "dds_create_writer"), *type_);
    }

    void receive(const char* name, lab::OnMessage on_message) override {
        on_message_ = std::move(on_message);
        dds_listener_t* listener = dds_create_listener(this);
        dds_lset_data_available(listener, [](dds_entity_t reader, void* self) { static_cast<CycloneDds*>(self)->take(reader); });
        checked(dds_create_reader(participant_, topic(name), qos_, listener), "dds_create_reader");
    }

private:
    dds_entity_t topic(const char* name) {
        return checked(dds_create_topic(participant_, type_->descriptor(), name, nullptr, nullptr), "dds_create_topic");
    }

    void take(dds_entity_t reader) const {
        dds_sample_info_t info;
        void* sample = nullptr;  // Lent by the library.
        while (checked(dds_take(reader, &sample, &info, 1, 1), "dds_take") > 0) {
            if (info.valid_data) {
                type_->pass_on(sample, on_message_);
            }
            checked(dds_return_loan(reader, &sample, 1), "dds_return_loan");
            sample = nullptr;
        }
    }

    dds_entity_t participant_;
    dds_qos_t* qos_;
    std::unique_ptr<MessageType> type_;
    lab::OnMessage on_message_;
};

}  // namespace

int main() {
    return lab::run([](const lab::Wiring& wiring) { return std::make_unique<CycloneDds>(wiring); });
}
