// Nervure as a peer of the declared experiments: nodes under `nervure run`, written with its public API for C++.

#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include <nervure.hpp>

#include "../endpoint/cpp/endpoint.hpp"

namespace {

// Sends from memory of its own, which the library copies.
class Sender : public lab::Publisher {
public:
    explicit Sender(nervure::Output output) : output_(output) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        stamp(source.data());
        output_.send_tensor(source, {source.size()});
    }

private:
    nervure::Output output_;
};

// Writes into memory that the library lends.
class Borrower : public lab::Publisher {
public:
    explicit Borrower(nervure::Output output) : output_(output) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        send_copy(source.data(), source.size(), stamp);
    }

    void answer(const std::uint8_t* payload, std::size_t bytes) override {
        send_copy(payload, bytes, [](void*) {});
    }

private:
    void send_copy(const std::uint8_t* payload, std::size_t bytes, const lab::Stamp& stamp) {
        nervure::Loan<std::uint8_t> loan = output_.loan<std::uint8_t>({bytes});
        std::memcpy(loan.data(), payload, bytes);
        stamp(loan.data());
        std::move(loan).send();
    }

    nervure::Output output_;
};

class Nervure : public lab::Peer {
public:
    explicit Nervure(const lab::Wiring& wiring) : lends_(wiring.configuration == "cpp-loan") {}

    std::unique_ptr<lab::Publisher> publisher(const char* topic) override {
        if (lends_) {
            return std::make_unique<Borrower>(node_.output(topic));
        }
        return std::make_unique<Sender>(node_.output(topic));
    }

    void receive(const char*, lab::OnMessage on_message) override {
        std::thread([this, on_message = std::move(on_message)] {
            while (const nervure::Event event = node_.next()) {
                if (event.kind() == NERVURE_EVENT_KIND_INPUT) {
                    const auto bytes = event.sample().bytes();
                    on_message(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
                }
            }
        }).detach();
    }

private:
    bool lends_;
    nervure::Node node_ = nervure::Node::connect();
};

}  // namespace

int main() {
    try {
        return lab::run([](const lab::Wiring& wiring) { return std::make_unique<Nervure>(wiring); });
    } catch (const std::exception& error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
}
