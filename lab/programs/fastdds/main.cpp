// Fast DDS publisher and subscriber of the link experiment: `PROGRAM receive|send`. Schedule, clock, report and
// environment variables are those of nervure_lab/experiments/link/endpoint.py.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
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

#include "bytes_type.hpp"
#include "environment.hpp"

using namespace eprosima::fastdds::dds;

namespace {

constexpr double DRAIN_SECONDS = 3.0;
constexpr double CONNECT_SECONDS = 10.0;
constexpr double GIVE_UP_SECONDS = 10.0;
constexpr std::size_t HEADER_BYTES = 16;
// 1500 bytes less the headers of IP and UDP.
constexpr std::uint32_t MAX_MESSAGE_BYTES = 1472;
constexpr std::uint32_t SOCKET_BUFFER_BYTES = 8 << 20;

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

void report(const std::string& json) { std::ofstream(environment("NERVURE_LAB_REPORT")) << json << "\n"; }

class Run {
public:
    Run() {
        const std::string case_text = environment("NERVURE_LAB_CASE");
        rendezvous = text_of(case_text, "rendezvous");
        samples = static_cast<std::uint64_t>(number_of(case_text, "samples"));
        rate_hz = number_of(case_text, "rate_hz");
        payload_bytes = std::max(static_cast<std::size_t>(number_of(case_text, "payload_bytes")), HEADER_BYTES);
    }

    // Notifies the lab that this end is ready, and waits for the time at which the schedule starts.
    void ready_then_wait_for_start() {
        const int lab = socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, rendezvous.c_str(), sizeof address.sun_path - 1);
        char line[64] = {};
        if (connect(lab, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || write(lab, "{}\n", 3) != 3 ||
            read(lab, line, sizeof line - 1) <= 0) {
            std::cerr << "error: the lab does not answer on " << rendezvous << "\n";
            std::exit(1);
        }
        close(lab);
        start_nanos = std::atoll(line);
        end_nanos = start_nanos + static_cast<std::int64_t>((samples / rate_hz + DRAIN_SECONDS) * 1e9);
        cpu_before = cpu_seconds();
    }

    double cpu() const { return cpu_seconds() - cpu_before; }

    std::string rendezvous;
    std::uint64_t samples;
    double rate_hz;
    std::size_t payload_bytes;
    std::int64_t start_nanos = 0;
    std::int64_t end_nanos = 0;
    double cpu_before = 0;
};

// UDP alone, because the ends share a machine and would use shared memory; messages that IP does not fragment; large
// buffers.
DomainParticipant* create_participant() {
    auto transport = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    transport->maxMessageSize = MAX_MESSAGE_BYTES;
    transport->sendBufferSize = SOCKET_BUFFER_BYTES;
    transport->receiveBufferSize = SOCKET_BUFFER_BYTES;
    DomainParticipantQos qos;
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(transport);
    auto* participant = DomainParticipantFactory::get_instance()->create_participant(0, qos);
    if (participant == nullptr) {
        std::cerr << "error: Fast DDS created no participant\n";
        std::exit(1);
    }
    return participant;
}

eprosima::fastrtps::Duration_t seconds(double value) {
    return {static_cast<std::int32_t>(value), static_cast<std::uint32_t>((value - std::floor(value)) * 1e9)};
}

// QoS that both ends must agree on.
template <typename Qos>
void set_common_qos(Qos& qos) {
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.durability().kind = VOLATILE_DURABILITY_QOS;
    qos.history().kind = KEEP_LAST_HISTORY_QOS;
    qos.history().depth = 10;
    qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
}

// Waits until the ends have matched; after the time limit the run starts without.
template <typename Matched>
void wait_for_match(Matched matched) {
    const std::int64_t until = monotonic_nanos() + static_cast<std::int64_t>(CONNECT_SECONDS * 1e9);
    while (!matched() && monotonic_nanos() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

int send(Run& run) {
    auto* participant = create_participant();
    TypeSupport type(new BytesType(run.payload_bytes));
    type.register_type(participant);
    auto* topic = participant->create_topic("lab", "Bytes", TOPIC_QOS_DEFAULT);
    DataWriterQos qos;
    set_common_qos(qos);
    // Required for samples larger than a message.
    qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
    auto& times = qos.reliable_writer_qos().times;
    times.heartbeatPeriod = seconds(1 / (2 * run.rate_hz));
    times.nackResponseDelay = seconds(0);
    times.nackSupressionDuration = seconds(0);
    times.initialHeartbeatDelay = seconds(0);
    // With a heartbeat on every message, the reader would request fragments that are in flight.
    qos.reliable_writer_qos().disable_heartbeat_piggyback = true;
    auto* writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)->create_datawriter(topic, qos);
    wait_for_match([writer] {
        PublicationMatchedStatus status;
        writer->get_publication_matched_status(status);
        return status.current_count > 0;
    });
    run.ready_then_wait_for_start();
    const auto report_cpu = [&run] { report("{\"cpu_s\": " + std::to_string(run.cpu()) + "}"); };
    BytesType::Bytes sample(run.payload_bytes);
    for (auto& byte : sample) {
        byte = static_cast<std::uint8_t>(std::rand());
    }
    // The lab ends a sender by SIGTERM, which all threads block and the reporting thread receives.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    std::thread([signals, report_cpu] {
        int signal = 0;
        sigwait(&signals, &signal);
        report_cpu();
        _exit(0);
    }).detach();
    for (std::uint64_t number = 0; number < run.samples; ++number) {
        const std::int64_t due = run.start_nanos + static_cast<std::int64_t>(number * 1e9 / run.rate_hz);
        std::this_thread::sleep_for(std::chrono::nanoseconds(due - monotonic_nanos()));
        std::memcpy(sample.data(), &due, 8);
        std::memcpy(sample.data() + 8, &number, 8);
        writer->write(&sample);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(run.end_nanos - monotonic_nanos()));
    report_cpu();
    _exit(0);
}

struct Reception {
    std::int64_t due;
    std::int64_t received;
};

class Receptions : public DataReaderListener {
public:
    explicit Receptions(Run& run) : run_(run) {}

    void on_data_available(DataReader* reader) override {
        BytesType::Bytes sample;
        SampleInfo info;
        while (reader->take_next_sample(&sample, &info) == ReturnCode_t::RETCODE_OK) {
            const std::int64_t now = monotonic_nanos();
            if (!info.valid_data || sample.size() != run_.payload_bytes) {
                continue;
            }
            std::int64_t due = 0;
            std::uint64_t number = 0;
            std::memcpy(&due, sample.data(), 8);
            std::memcpy(&number, sample.data() + 8, 8);
            const std::lock_guard<std::mutex> lock(mutex_);
            duplicates_ += !received_.emplace(number, Reception{due, now}).second;
            last_ = now;
            changed_.notify_one();
        }
    }

    // Waits until all samples have arrived, the schedule has ended, or none has come within GIVE_UP_SECONDS.
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const std::int64_t give_up_at = run_.start_nanos + static_cast<std::int64_t>(GIVE_UP_SECONDS * 1e9);
        while (received_.size() < run_.samples) {
            const std::int64_t until = received_.empty() ? std::min(give_up_at, run_.end_nanos) : run_.end_nanos;
            const std::int64_t left = until - monotonic_nanos();
            if (left <= 0) {
                gave_up_ = received_.empty() && until < run_.end_nanos;
                return;
            }
            changed_.wait_for(lock, std::chrono::nanoseconds(left));
        }
    }

    void write_report() {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::vector<double> latencies;
        std::ofstream file(environment("NERVURE_LAB_RECEPTIONS"));
        std::vector<std::pair<std::int64_t, std::uint64_t>> order;
        double sum = 0;
        for (const auto& [number, reception] : received_) {
            latencies.push_back((reception.received - reception.due) * 1e-6);
            sum += latencies.back();
            order.emplace_back(reception.received, number);
        }
        std::sort(order.begin(), order.end());
        for (const auto& [received, number] : order) {
            file << "lab " << number << " " << received_[number].due << " " << received << "\n";
        }
        std::sort(latencies.begin(), latencies.end());
        const std::size_t count = latencies.size();
        const auto percentile = [&](double share) {
            const auto rank = static_cast<std::size_t>(std::max(std::ceil(share * count) - 1, 0.0));
            return std::to_string(count ? latencies[rank] : 0.0);
        };
        report("{\"delivered\": " + std::to_string(count) + ", \"duplicates\": " + std::to_string(duplicates_) +
               ", \"mean_ms\": " + std::to_string(count ? sum / count : 0.0) + ", \"p50_ms\": " + percentile(0.5) +
               ", \"p99_ms\": " + percentile(0.99) + ", \"max_ms\": " + percentile(1.0) + ", \"seconds\": " +
               std::to_string(std::max<std::int64_t>(last_ - run_.start_nanos, 0) * 1e-9) + ", \"cpu_s\": " +
               std::to_string(run_.cpu()) + ", \"gave_up\": " + (gave_up_ ? "true" : "false") + "}");
    }

private:
    Run& run_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uint64_t, Reception> received_;
    std::uint64_t duplicates_ = 0;
    std::int64_t last_ = 0;
    bool gave_up_ = false;
};

int receive(Run& run) {
    auto* participant = create_participant();
    TypeSupport type(new BytesType(run.payload_bytes));
    type.register_type(participant);
    auto* topic = participant->create_topic("lab", "Bytes", TOPIC_QOS_DEFAULT);
    DataReaderQos qos;
    set_common_qos(qos);
    auto& times = qos.reliable_reader_qos().times;
    times.heartbeatResponseDelay = seconds(0);
    times.initialAcknackDelay = seconds(0);
    Receptions receptions(run);
    auto* reader = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos, &receptions);
    wait_for_match([reader] {
        SubscriptionMatchedStatus status;
        reader->get_subscription_matched_status(status);
        return status.current_count > 0;
    });
    run.ready_then_wait_for_start();
    receptions.wait();
    receptions.write_report();
    // Deleting the entities would wait for the other end.
    _exit(0);
}

}  // namespace

int main(int count, char** words) {
    const std::string end = count == 2 ? words[1] : "";
    if (end != "send" && end != "receive") {
        std::cerr << "error: expected `send` or `receive`\n";
        return 2;
    }
    // Blocked before any thread is created, so that all threads block it.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    if (end == "send") {
        pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    }
    Run run;
    return end == "send" ? send(run) : receive(run);
}
