// ROS 2 endpoint of the declared experiments, with rclcpp.

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <rclcpp/rclcpp.hpp>
#include <std_msgs/msg/u_int8_multi_array.hpp>

#include "../endpoint/cpp/endpoint.hpp"

namespace {

using Message = std_msgs::msg::UInt8MultiArray;

// Sends a message that the middleware serialises.
class Sender : public lab::Publisher {
public:
    explicit Sender(rclcpp::Publisher<Message>::SharedPtr publisher) : publisher_(std::move(publisher)) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        stamp(source.data());
        message_.data.swap(source);
        publisher_->publish(message_);
        message_.data.swap(source);
    }

private:
    rclcpp::Publisher<Message>::SharedPtr publisher_;
    Message message_;
};

// Hands messages over to subscribers of the same process by pointer.
class Sharer : public lab::Publisher {
public:
    explicit Sharer(rclcpp::Publisher<Message>::SharedPtr publisher) : publisher_(std::move(publisher)) {}

    void publish(lab::Bytes& source, const lab::Stamp& stamp) override {
        auto message = std::make_unique<Message>();
        message->data = source;
        stamp(message->data.data());
        publisher_->publish(std::move(message));
    }

private:
    rclcpp::Publisher<Message>::SharedPtr publisher_;
};

class Ros2 : public lab::Peer {
public:
    explicit Ros2(const lab::Wiring& wiring)
        : is_intraprocess_(wiring.configuration == "intraprocess"),
          qos_(rclcpp::KeepLast(static_cast<std::size_t>(wiring.depth))),
          node_(std::make_shared<rclcpp::Node>("lab_" + wiring.role + "_" + std::to_string(wiring.index),
                                               rclcpp::NodeOptions().use_intra_process_comms(is_intraprocess_))) {
        if (!wiring.reliable) {
            qos_.best_effort();
        }
    }

    std::unique_ptr<lab::Publisher> publisher(const char* topic) override {
        auto publisher = node_->create_publisher<Message>(std::string("lab_") + topic, qos_);
        if (is_intraprocess_) {
            return std::make_unique<Sharer>(std::move(publisher));
        }
        return std::make_unique<Sender>(std::move(publisher));
    }

    void receive(const char* topic, lab::OnMessage on_message) override {
        const auto callback = [on_message = std::move(on_message)](const Message::ConstSharedPtr message) {
            on_message(message->data.data(), message->data.size());
        };
        subscription_ = node_->create_subscription<Message>(std::string("lab_") + topic, qos_, callback);
        std::thread([node = node_] { rclcpp::spin(node); }).detach();
    }

private:
    bool is_intraprocess_;
    rclcpp::QoS qos_;
    rclcpp::Node::SharedPtr node_;
    rclcpp::Subscription<Message>::SharedPtr subscription_;
};

}  // namespace

int main(int count, char** words) {
    rclcpp::init(count, words);
    return lab::run([](const lab::Wiring& wiring) { return std::make_unique<Ros2>(wiring); });
}
