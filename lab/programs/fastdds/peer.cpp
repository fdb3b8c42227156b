// Fast DDS endpoint of the declared experiments. Protocol, header and logs are those of
// nervure_lab/peer_endpoint.py.

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

#include "environment.hpp"
#include "message_types.hpp"

using namespace eprosima::fastdds::dds;
using eprosima::fastdds::rtps::SharedMemTransportDescriptor;
using eprosima::fastdds::rtps::UDPv4TransportDescriptor;

namespace {

constexpr std::int64_t PROBE = -1;
constexpr std::size_t LEAST_BYTES = 64;
constexpr int PROBE_MILLIS = 20;
constexpr int POLL_MILLIS = 50;
constexpr std::int64_t BUSY_NANOS = 150'000;
// 1500 bytes less the headers of IP and UDP.
constexpr std::uint32_t MAX_MESSAGE_BYTES = 1472;
constexpr std::uint32_t SOCKET_BUFFER_BYTES = 8 << 20;
constexpr std::uint32_t SEGMENT_BYTES = 32 << 20;

struct Header {
    std::int64_t sequence, publisher, due, stamped;
};

struct Wiring {
    std::string text;
    std::string configuration = text_of(text, "configuration");
    std::string role = text_of(text, "role");
    std::string message = text_of(text, "message");
    bool on_link = text_of(text, "place") == "link";
    bool reliable = text.find("\"reliable\": true") != std::string::npos;
    bool keep_all = text.find("\"keep_all\": true") != std::string::npos;
    // All QoS is then that of the profiles, which Fast DDS loads by itself.
    bool from_profiles = !text_of(text, "settings_file").empty();
    std::size_t payload_bytes = std::max<std::size_t>(number_of(text, "payload_bytes"), LEAST_BYTES);
    double rate_hz = number_of(text, "rate_hz");
    int index = static_cast<int>(number_of(text, "index"));
    int publishers = static_cast<int>(number_of(text, "publishers"));
    int depth = static_cast<int>(number_of(text, "depth"));
    std::uint32_t domain = static_cast<std::uint32_t>(number_of(text, "domain"));
    bool tuned = configuration.rfind("tuned", 0) == 0;
    bool synchronous = configuration.find("sync") != std::string::npos && configuration.find("async") == std::string::npos;
};

class Driver {
public:
    Driver() : socket_(socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, environment("NERVURE_LAB_RENDEZVOUS"), sizeof address.sun_path - 1);
        if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
            std::cerr << "error: the lab does not answer\n";
            std::exit(1);
        }
    }

    void report(const std::string& json) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const std::string line = json + "\n";
        if (write(socket_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
            _exit(1);
        }
    }

    // Returns the next line, or an empty one after the timeout.
    std::string line(int timeout_millis) {
        while (received_.find('\n') == std::string::npos) {
            pollfd readable{socket_, POLLIN, 0};
            if (poll(&readable, 1, timeout_millis) <= 0) {
                return "";
            }
            std::array<char, 256> bytes{};
            const ssize_t count = read(socket_, bytes.data(), bytes.size());
            if (count <= 0) {
                _exit(1);
            }
            received_.append(bytes.data(), static_cast<std::size_t>(count));
        }
        const auto end = received_.find('\n');
        const std::string found = received_.substr(0, end);
        received_.erase(0, end + 1);
        return found;
    }

private:
    int socket_;
    std::mutex mutex_;
    std::string received_;
};

void write_log(const Wiring& wiring, const char* kind, const std::vector<std::int64_t>& log) {
    const std::string name = std::string(environment("NERVURE_LAB_LOGS")) + "/" + kind + "-" + wiring.role + "-" +
                             std::to_string(wiring.index) + ".log";
    std::ofstream file(name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(log.data()), static_cast<std::streamsize>(log.size() * 8));
    if (!file.flush()) {
        std::cerr << "error: cannot write " << name << "\n";
        std::exit(1);
    }
}

DomainParticipant* create_participant(const Wiring& wiring) {
    DomainParticipantFactory::get_instance()->load_profiles();
    DomainParticipantQos qos = DomainParticipantFactory::get_instance()->get_default_participant_qos();
    if (!wiring.from_profiles && (wiring.on_link || wiring.tuned)) {
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

class Entities {
public:
    explicit Entities(const Wiring& wiring)
        : wiring_(wiring), participant_(create_participant(wiring)), type_(type_of(wiring.message, wiring.payload_bytes)) {
        type_.register_type(participant_);
    }

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

private:
    Topic* topic(const char* name) {
        return participant_->create_topic(name, type_.get_type_name(), TOPIC_QOS_DEFAULT);
    }

    const Wiring& wiring_;
    DomainParticipant* participant_;
    TypeSupport type_;
};

class Listener : public DataReaderListener {
public:
    using OnMessage = std::function<void(void*)>;
    Listener(MessageType& type, OnMessage on_message)
        : type_(type), on_message_(std::move(on_message)), sample_(type.createData()) {}
    ~Listener() override { type_.deleteData(sample_); }

    void on_data_available(DataReader* reader) override {
        SampleInfo info;
        while (reader->take_next_sample(sample_, &info) == ReturnCode_t::RETCODE_OK) {
            if (info.valid_data) {
                on_message_(sample_);
            }
        }
    }

private:
    MessageType& type_;
    OnMessage on_message_;
    void* sample_;
};

class Receptions {
public:
    Receptions(Driver& driver, MessageType& type, std::size_t expected, bool reads, std::int64_t work_nanos)
        : driver_(driver), type_(type), expected_(expected), reads_(reads), work_nanos_(work_nanos) {}

    void on_message(void* sample) {
        const std::int64_t received = monotonic_nanos();
        Header header{};
        if (!type_.read_head(sample, &header, sizeof header)) {
            ++wrong_;
            return;
        }
        if (header.sequence == PROBE) {
            if (probed_.insert(header.publisher).second) {
                driver_.report("{\"probe\": " + std::to_string(header.publisher) +
                               ", \"received\": " + std::to_string(received) + "}");
            }
            return;
        }
        std::int64_t read = received;
        // Only samples of bytes are read or worked on.
        if (reads_) {
            const BytesType::Bytes copy(*static_cast<BytesType::Bytes*>(sample));
            asm volatile("" : : "r"(copy.data()) : "memory");
            read = monotonic_nanos();
        }
        if (work_nanos_ > 0) {
            while (monotonic_nanos() < received + work_nanos_) {
                const auto& bytes = *static_cast<BytesType::Bytes*>(sample);
                const std::uint64_t sum = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
                asm volatile("" : : "r"(sum));
            }
            read = monotonic_nanos();
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        log_.insert(log_.end(), {header.sequence, header.publisher, header.due, header.stamped, received, read});
        seen_.insert({header.sequence, header.publisher});
        complete = seen_.size() >= expected_;
    }

    void report(const Wiring& wiring) {
        const std::lock_guard<std::mutex> lock(mutex_);
        write_log(wiring, "receptions", log_);
        driver_.report("{\"received\": true, \"wrong\": " + std::to_string(wrong_) + "}");
    }

    std::atomic<bool> complete{false};

private:
    Driver& driver_;
    MessageType& type_;
    std::size_t expected_;
    bool reads_;
    std::int64_t work_nanos_;
    std::mutex mutex_;
    std::set<std::int64_t> probed_;
    std::set<std::pair<std::int64_t, std::int64_t>> seen_;
    std::vector<std::int64_t> log_;
    std::size_t wrong_ = 0;
};

class Publications {
public:
    Publications(DataWriter* writer, MessageType& type, const Wiring& wiring)
        : writer_(writer),
          type_(type),
          index_(wiring.index),
          sample_(type.create(wiring.payload_bytes)),
          probe_(type.create(LEAST_BYTES)) {}
    ~Publications() {
        type_.deleteData(sample_);
        type_.deleteData(probe_);
    }
    Publications(const Publications&) = delete;
    Publications& operator=(const Publications&) = delete;

    void probe() { write(probe_, PROBE, 0); }

    void publish(std::int64_t sequence, std::int64_t due) {
        const std::int64_t before = monotonic_nanos();
        const std::int64_t stamped = write(sample_, sequence, due);
        log.insert(log.end(), {sequence, due, before, stamped, monotonic_nanos()});
    }

    std::vector<std::int64_t> log;

private:
    std::int64_t write(void* sample, std::int64_t sequence, std::int64_t due) {
        const Header header{sequence, index_, due, monotonic_nanos()};
        type_.write_head(sample, &header, sizeof header);
        writer_->write(sample);
        return header.stamped;
    }

    DataWriter* writer_;
    MessageType& type_;
    std::int64_t index_;
    void* sample_;
    void* probe_;
};

void wait_until(std::int64_t due) {
    const std::int64_t left = due - BUSY_NANOS - monotonic_nanos();
    if (left > 0) {
        const timespec time{left / 1'000'000'000, left % 1'000'000'000};
        nanosleep(&time, nullptr);
    }
    while (monotonic_nanos() < due) {
    }
}

void run_endpoint(const Wiring& wiring) {
    prctl(PR_SET_TIMERSLACK, 1);
    const std::int64_t opening = monotonic_nanos();
    const std::string case_text = environment("NERVURE_LAB_CASE");
    const auto messages = static_cast<std::int64_t>(number_of(case_text, "messages") + number_of(case_text, "warmup"));
    const auto work_nanos = static_cast<std::int64_t>(number_of(case_text, "work_millis") * 1e6);
    const bool ends_on_time = case_text.find("\"ends_on_time\": true") != std::string::npos;
    const bool reads = case_text.find("\"reads\": true") != std::string::npos;
    Driver driver;
    Entities entities(wiring);
    std::unique_ptr<Publications> publications;
    std::unique_ptr<Receptions> receptions;
    std::unique_ptr<Listener> listener;
    const bool is_client = wiring.role == "client";
    if (wiring.role == "publisher" || is_client) {
        publications = std::make_unique<Publications>(entities.writer(is_client ? "ping" : "data"), entities.type(), wiring);
    }
    if (wiring.role == "subscriber" || is_client) {
        const auto expected = static_cast<std::size_t>(messages * wiring.publishers);
        receptions = std::make_unique<Receptions>(driver, entities.type(), expected, reads, work_nanos);
        listener = std::make_unique<Listener>(entities.type(), [&](void* sample) { receptions->on_message(sample); });
        entities.reader(is_client ? "pong" : "data", listener.get());
    }
    if (wiring.role == "echo") {
        DataWriter* answer = entities.writer("pong");
        listener = std::make_unique<Listener>(entities.type(), [answer](void* sample) {
            BytesType::Bytes copy(*static_cast<BytesType::Bytes*>(sample));
            answer->write(&copy);
        });
        entities.reader("ping", listener.get());
    }
    driver.report("{\"role\": \"" + wiring.role + "\", \"index\": " + std::to_string(wiring.index) + ", \"pid\": " +
                  std::to_string(getpid()) + ", \"opening\": " + std::to_string(opening) + ", \"opened\": " +
                  std::to_string(monotonic_nanos()) + "}");
    bool probing = false;
    bool reported = false;
    while (true) {
        if (probing && publications) {
            publications->probe();
        }
        const std::string line = driver.line(probing ? PROBE_MILLIS : POLL_MILLIS);
        if (line == "probe") {
            probing = true;
        } else if (line.rfind("start ", 0) == 0) {
            probing = false;
            if (publications) {
                const std::int64_t start = std::atoll(line.c_str() + 6);
                for (std::int64_t sequence = 0; sequence < messages; ++sequence) {
                    const std::int64_t due = start + static_cast<std::int64_t>(sequence * 1e9 / wiring.rate_hz);
                    wait_until(due);
                    if (ends_on_time && monotonic_nanos() > start + static_cast<std::int64_t>(messages * 1e9 / wiring.rate_hz)) {
                        break;
                    }
                    publications->publish(sequence, due);
                }
                write_log(wiring, "publications", publications->log);
                driver.report("{\"sent\": true}");
            }
        } else if (line == "stop") {
            if (receptions && !reported) {
                receptions->report(wiring);
            }
            reported = true;
            driver.report("{\"stopped\": true}");
        } else if (line == "leave") {
            _exit(0);  // Deleting the entities would wait for the other end.
        }
        if (receptions && !reported && receptions->complete) {
            receptions->report(wiring);
            reported = true;
        }
    }
}

}  // namespace

int main() {
    const Wiring wiring{environment("NERVURE_LAB_WIRING")};
    // In one process, the other end is on a thread of its own.
    std::thread other;
    if (const char* text = std::getenv("NERVURE_LAB_OTHER_WIRING")) {
        other = std::thread(run_endpoint, Wiring{text});
    }
    run_endpoint(wiring);
}
