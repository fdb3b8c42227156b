// ROS 1 endpoint of the declared experiments, with roscpp.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <ros/ros.h>
#include <std_msgs/UInt8MultiArray.h>

#include "../endpoint/cpp/endpoint.hpp"

namespace {

using Message = std_msgs::UInt8MultiArray;

// Sends a message that the library serialises.
class Sender : public lab::Publisher {
public:
    explicit Sender(ros::Publisher publisher) : publisher_(std::move(publisher)) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        stamp(source.data());
        message_.data.swap(source);
        publisher_.publish(message_);
        message_.data.swap(source);
    }

private:
    ros::Publisher publisher_;
    Message message_;
};

// Hands messages over to subscribers of the same process by pointer.
class Sharer : public lab::Publisher {
public:
    explicit Sharer(ros::Publisher publisher) : publisher_(std::move(publisher)) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        auto message = boost::make_shared<Message>();
        message->data = source;
        stamp(message->data.data());
        publisher_.publish(message);
    }

private:
    ros::Publisher publisher_;
};

class Ros1 : public lab::Peer {
public:
    explicit Ros1(const lab::Wiring& wiring) : wiring_(wiring) {}

    std::unique_ptr<lab::Publisher> publisher(const char* topic) override {
        ros::Publisher publisher = node_.advertise<Message>(topic, static_cast<std::uint32_t>(wiring_.depth));
        if (wiring_.configuration == "roscpp-intraprocess") {
            return std::make_unique<Sharer>(std::move(publisher));
        }
        return std::make_unique<Sender>(std::move(publisher));
    }

    void receive(const char* topic, lab::OnMessage on_message) override {
        const bool is_tuned = wiring_.configuration == "roscpp-tuned";
        const auto depth = static_cast<std::uint32_t>(wiring_.depth);
        const boost::function<void(const Message::ConstPtr&)> callback = [on_message = std::move(on_message)](
                                                                            const Message::ConstPtr& message) {
            on_message(message->data.data(), message->data.size());
        };
        const ros::TransportHints hints = ros::TransportHints().tcpNoDelay(is_tuned);
        subscriber_ = node_.subscribe<Message>(topic, depth, callback, ros::VoidConstPtr(), hints);
        spinner_.start();
    }

private:
    const lab::Wiring wiring_;
    ros::NodeHandle node_;
    ros::Subscriber subscriber_;
    // One thread with the queue of all callbacks of the process.
    ros::AsyncSpinner spinner_{1};
};

}  // namespace

int main(int count, char** words) {
    const lab::Wiring wiring{environment("NERVURE_LAB_WIRING")};
    const std::string name = "lab_" + wiring.role + "_" + std::to_string(wiring.index);
    ros::init(count, words, name, ros::init_options::NoSigintHandler | ros::init_options::NoRosout);
    return lab::run([](const lab::Wiring& end) { return std::make_unique<Ros1>(end); });
}
