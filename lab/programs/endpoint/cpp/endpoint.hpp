// An endpoint of the declared experiments: a peer publishes and receives bytes, and everything else is here.
// Protocol, header and logs are the same as in nervure_lab/peer_endpoint.py.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "environment.hpp"

namespace lab {

constexpr std::size_t LEAST_BYTES = 64;

using Bytes = std::vector<std::uint8_t>;
// Writes the header into the first octets of a buffer, with the time of the call.
using Stamp = std::function<void(void*)>;
// Takes a received payload, which is valid until the function returns.
using OnMessage = std::function<void(const std::uint8_t*, std::size_t)>;

struct Header {
    std::int64_t sequence, publisher, due, stamped;
};

// The ends that an endpoint opens: a part of `Wiring` in nervure_lab/peer.py.
struct Wiring {
    std::string text;
    std::string run_name = text_of(text, "run_name");
    std::string configuration = text_of(text, "configuration");
    std::string role = text_of(text, "role");
    std::string message = text_of(text, "message");
    std::string settings_file = text_of(text, "settings_file");
    std::string address = text_of(text, "address");
    bool on_link = text_of(text, "place") == "link";
    bool reliable = text.find("\"reliable\": true") != std::string::npos;
    bool keep_all = text.find("\"keep_all\": true") != std::string::npos;
    std::size_t payload_bytes = std::max<std::size_t>(number_of(text, "payload_bytes"), LEAST_BYTES);
    double rate_hz = number_of(text, "rate_hz");
    int index = static_cast<int>(number_of(text, "index"));
    int publishers = static_cast<int>(number_of(text, "publishers"));
    int depth = static_cast<int>(number_of(text, "depth"));
    std::uint32_t domain = static_cast<std::uint32_t>(number_of(text, "domain"));
};

class Publisher {
public:
    virtual ~Publisher() = default;

    // Sends a copy of `source`. Calls `stamp` on the peer's own memory after the copy; where its API copies inside
    // its send call, calls `stamp` on `source` right before that.
    virtual void publish(Bytes& source, const Stamp& stamp) = 0;

    // Sends a payload back, with the copy that an echo that computes an answer would make.
    virtual void answer(const std::uint8_t* payload, std::size_t bytes) {
        Bytes copy(payload, payload + bytes);
        publish(copy, [](void*) {});
    }
};

// A middleware, for the ends of one endpoint.
class Peer {
public:
    virtual ~Peer() = default;
    virtual std::unique_ptr<Publisher> publisher(const char* topic) = 0;
    // Passes the messages of a topic on, from one thread, until the process ends.
    virtual void receive(const char* topic, OnMessage on_message) = 0;
};

using MakePeer = std::function<std::unique_ptr<Peer>(const Wiring&)>;

namespace detail {

constexpr std::int64_t PROBE = -1;
constexpr int PROBE_MILLIS = 20;
constexpr int POLL_MILLIS = 50;
// The last part of each wait is a busy loop: sleeping alone wakes up late by tens of microseconds.
constexpr std::int64_t BUSY_NANOS = 150'000;

// The connection to the driver.
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

inline void write_log(const Wiring& wiring, const char* kind, const std::vector<std::int64_t>& log) {
    const std::string name = std::string(environment("NERVURE_LAB_LOGS")) + "/" + kind + "-" + wiring.role + "-" +
                             std::to_string(wiring.index) + ".log";
    std::ofstream file(name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(log.data()), static_cast<std::streamsize>(log.size() * 8));
    if (!file.flush()) {
        std::cerr << "error: cannot write " << name << "\n";
        std::exit(1);
    }
}

struct Case {
    std::string text = environment("NERVURE_LAB_CASE");
    std::int64_t messages = static_cast<std::int64_t>(number_of(text, "messages") + number_of(text, "warmup"));
    std::int64_t work_nanos = static_cast<std::int64_t>(number_of(text, "work_millis") * 1e6);
    bool ends_on_time = text.find("\"ends_on_time\": true") != std::string::npos;
    bool reads = text.find("\"reads\": true") != std::string::npos;
};

// The messages that an endpoint received.
class Receptions {
public:
    Receptions(Driver& driver, const Wiring& wiring, const Case& run)
        : driver_(driver), run_(run), expected_(static_cast<std::size_t>(run.messages * wiring.publishers)) {}

    void on_message(const std::uint8_t* payload, std::size_t bytes) {
        const std::int64_t received = monotonic_nanos();
        if (bytes < sizeof(Header)) {
            ++wrong_;
            return;
        }
        Header header{};
        std::memcpy(&header, payload, sizeof header);
        if (header.sequence == PROBE) {
            if (probed_.insert(header.publisher).second) {
                driver_.report("{\"probe\": " + std::to_string(header.publisher) +
                               ", \"received\": " + std::to_string(received) + "}");
            }
            return;
        }
        std::int64_t read = received;
        if (run_.reads) {
            const Bytes copy(payload, payload + bytes);
            asm volatile("" : : "r"(copy.data()) : "memory");
            read = monotonic_nanos();
        }
        if (run_.work_nanos > 0) {
            while (monotonic_nanos() < received + run_.work_nanos) {
                const std::uint64_t sum = std::accumulate(payload, payload + bytes, std::uint64_t{0});
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
    const Case& run_;
    std::size_t expected_;
    std::mutex mutex_;
    std::set<std::int64_t> probed_;
    std::set<std::pair<std::int64_t, std::int64_t>> seen_;
    std::vector<std::int64_t> log_;
    std::atomic<std::size_t> wrong_{0};
};

inline void wait_until(std::int64_t due) {
    const std::int64_t left = due - BUSY_NANOS - monotonic_nanos();
    if (left > 0) {
        const timespec time{left / 1'000'000'000, left % 1'000'000'000};
        nanosleep(&time, nullptr);
    }
    while (monotonic_nanos() < due) {
    }
}

class Publications {
public:
    Publications(std::unique_ptr<Publisher> publisher, const Wiring& wiring)
        : publisher_(std::move(publisher)), wiring_(wiring), source_(wiring.payload_bytes), probe_(LEAST_BYTES) {
        // Not zeros: compression and shared zero pages would favour some.
        std::mt19937 random(1);
        std::generate(source_.begin(), source_.end(), [&] { return static_cast<std::uint8_t>(random()); });
    }

    void probe() { publish(probe_, PROBE, 0); }

    void send_all(const Case& run, std::int64_t start) {
        const auto due_of = [&](std::int64_t sequence) {
            return start + static_cast<std::int64_t>(sequence * 1e9 / wiring_.rate_hz);
        };
        const std::int64_t end = due_of(run.messages);
        for (std::int64_t sequence = 0; sequence < run.messages; ++sequence) {
            const std::int64_t due = due_of(sequence);
            wait_until(due);
            const std::int64_t before = monotonic_nanos();
            if (run.ends_on_time && before > end) {
                break;
            }
            const std::int64_t stamped = publish(source_, sequence, due);
            log_.insert(log_.end(), {sequence, due, before, stamped, monotonic_nanos()});
        }
        // The report of this end must not disturb the last message.
        wait_until(end);
        write_log(wiring_, "publications", log_);
    }

private:
    std::int64_t publish(Bytes& source, std::int64_t sequence, std::int64_t due) {
        Header header{sequence, wiring_.index, due, 0};
        publisher_->publish(source, [&header](void* memory) {
            header.stamped = monotonic_nanos();
            std::memcpy(memory, &header, sizeof header);
        });
        return header.stamped;
    }

    std::unique_ptr<Publisher> publisher_;
    const Wiring& wiring_;
    Bytes source_, probe_;
    std::vector<std::int64_t> log_;
};

// Follows the driver's orders until it ends the process.
inline void follow(Driver& driver, const Wiring& wiring, const Case& run, Publications* publications, Receptions* receptions) {
    bool probing = false;
    bool reported = false;
    while (true) {
        if (probing && publications != nullptr) {
            publications->probe();
        }
        const std::string line = driver.line(probing ? PROBE_MILLIS : POLL_MILLIS);
        if (line == "probe") {
            probing = true;
        } else if (line.rfind("start ", 0) == 0) {
            probing = false;
            if (publications != nullptr) {
                publications->send_all(run, std::atoll(line.c_str() + 6));
                driver.report("{\"sent\": true}");
            }
        } else if (line == "stop") {
            if (receptions != nullptr && !reported) {
                receptions->report(wiring);
            }
            reported = true;
            driver.report("{\"stopped\": true}");
        } else if (line == "leave") {
            _exit(0);  // Closing may wait for the other end.
        }
        if (receptions != nullptr && !reported && receptions->complete) {
            receptions->report(wiring);
            reported = true;
        }
    }
}

inline void run_endpoint(const MakePeer& make, const Wiring& wiring) {
    prctl(PR_SET_TIMERSLACK, 1);
    const std::int64_t opening = monotonic_nanos();
    const Case run;
    Driver driver;
    const std::unique_ptr<Peer> peer = make(wiring);
    std::unique_ptr<Publications> publications;
    std::unique_ptr<Receptions> receptions;
    std::unique_ptr<Publisher> answers;
    const bool is_client = wiring.role == "client";
    if (wiring.role == "publisher" || is_client) {
        publications = std::make_unique<Publications>(peer->publisher(is_client ? "ping" : "data"), wiring);
    }
    if (wiring.role == "subscriber" || is_client) {
        receptions = std::make_unique<Receptions>(driver, wiring, run);
        peer->receive(is_client ? "pong" : "data", [&receptions](const std::uint8_t* payload, std::size_t bytes) {
            receptions->on_message(payload, bytes);
        });
    }
    if (wiring.role == "echo") {
        answers = peer->publisher("pong");
        peer->receive("ping", [&answers](const std::uint8_t* payload, std::size_t bytes) { answers->answer(payload, bytes); });
    }
    driver.report("{\"role\": \"" + wiring.role + "\", \"index\": " + std::to_string(wiring.index) + ", \"pid\": " +
                  std::to_string(getpid()) + ", \"opening\": " + std::to_string(opening) + ", \"opened\": " +
                  std::to_string(monotonic_nanos()) + "}");
    follow(driver, wiring, run, publications.get(), receptions.get());
}

}  // namespace detail

// Runs the endpoints that the environment describes until the driver ends them.
inline int run(const MakePeer& make) {
    const Wiring wiring{environment("NERVURE_LAB_WIRING")};
    // In one process, the other end is on a thread of its own.
    std::thread other;
    if (const char* text = std::getenv("NERVURE_LAB_OTHER_WIRING")) {
        other = std::thread([&make, text] { detail::run_endpoint(make, Wiring{text}); });
    }
    detail::run_endpoint(make, wiring);
    return 0;
}

}  // namespace lab
