// Reads the records that `records.c` and Rust send, as `tests/test_records.py` expects them.
#include <nervure.hpp>
#include <nervure_types.hpp>

#include <iostream>

using namespace nervure::types;

// A part of a record: other fields are ignored.
struct Frame {
    static constexpr std::string_view nervure_type = "Frame";

    struct Point {
        static constexpr std::string_view nervure_type = "Point";

        float x = 0;
        std::vector<std::string> labels;

        template <typename Self, typename Visitor> static void visit(Self &self, Visitor &visitor) {
            visitor("x", self.x);
            visitor("labels", self.labels);
        }
    };

    std::uint64_t count = 0;
    std::optional<double> score = 1;
    std::optional<double> absent = 1;
    std::vector<Point> points;
    std::vector<float> ranges;
    std::array<int, 12> transposed = {};
    std::vector<nervure::Bool> flags;

    template <typename Self, typename Visitor> static void visit(Self &self, Visitor &visitor) {
        visitor("count", self.count);
        visitor("score", self.score);
        visitor("absent", self.absent);
        visitor("points", self.points);
        visitor("ranges", self.ranges);
        visitor("transposed", self.transposed);
        visitor("flags", self.flags);
    }
};

// Fields of types that the record does not have.
struct Wrong {
    static constexpr std::string_view nervure_type = "Wrong";

    struct Inner {
        static constexpr std::string_view nervure_type = "Inner";

        std::uint8_t x = 0;

        template <typename Self, typename Visitor> static void visit(Self &self, Visitor &visitor) {
            visitor("x", self.x);
        }
    };

    std::vector<Inner> points;

    template <typename Self, typename Visitor> static void visit(Self &self, Visitor &visitor) {
        visitor("points", self.points);
    }
};

template <typename Run> static void refused(Run run) {
    try {
        run();
    } catch (const nervure::Error &error) {
        std::cout << "refused: " << error.what() << std::endl;
        return;
    }
    std::cerr << "it was not refused" << std::endl;
    std::exit(1);
}

static void read_frame(nervure::SampleView sample) {
    const Frame frame = nervure::read<Frame>(sample);
    std::cout << "frame " << frame.count << " " << frame.score.has_value() << frame.absent.has_value() << " "
              << frame.points.size() << " " << frame.points[1].x << " " << frame.points[1].labels[1] << " "
              << frame.ranges[2] << " " << frame.transposed[1] << " " << frame.flags[0] << frame.flags[1] << std::endl;
    refused([&] { nervure::read<Wrong>(sample); });
    refused([&] { nervure::read<Twist>(sample); });
    const nervure::Record record(sample);
    std::cout << "record " << record.get<std::string>("tags[1]") << " " << record.count("points") << " "
              << record.get<Frame::Point>("points[0]").x << " " << record.get<std::vector<int>>("image").size() << " "
              << int(record.tensor<std::uint8_t>("image")(1, 1, 2)) << " " << record.get<std::optional<int>>("none").has_value()
              << record.get<std::optional<int>>("score").has_value() << std::endl;
    refused([&] { record.get<int>("count"); });
    refused([&] { record.get<std::string>("points[0].x"); });
    refused([&] { record.get<double>("score"); });
    refused([&] { record.get<std::array<double, 2>>("ranges"); });
    refused([&] { record.tensor<float>("image"); });
}

int main() {
    nervure::Node node = nervure::Node::connect();
    while (const nervure::Event event = node.next()) {
        if (event.is_input("detections")) {
            const Detections2D found = nervure::read<Detections2D>(event.sample());
            std::cout << "detections " << found.detections.size();
            for (const Detection2D &one : found.detections) {
                std::cout << " " << one.id.value_or("-") << " " << one.results.size() << " " << one.bbox.size_x;
            }
            std::cout << std::endl;
        } else if (event.is_input("odometry")) {
            const Odometry found = nervure::read<Odometry>(event.sample());
            std::cout << "odometry " << found.twist.twist.linear.x << " " << found.pose.pose.orientation.w << " "
                      << (*found.pose.covariance)[35] << " " << (*found.twist.covariance)[35] << std::endl;
        } else if (event.is_input("twist")) {
            const Twist found = nervure::read<Twist>(event.sample());
            std::cout << "twist " << found.linear.x << " " << found.angular.z << std::endl;
        } else if (event.is_input("frame")) {
            read_frame(event.sample());
        } else if (event.is_input("untyped")) {
            const nervure::Record record(event.sample());
            std::cout << "robots " << record.get<std::string>("robots[1].name") << " "
                      << record.get<std::optional<bool>>("robots[1].moves").has_value() << " "
                      << record.get<std::vector<std::uint8_t>>("key").size() << std::endl;
        } else if (event.is_input("number")) {
            refused([&] { nervure::read<Twist>(event.sample()); });
            refused([&] { nervure::Record record(event.sample()); });
        } else if (event.is_input("list")) {
            refused([&] { nervure::read<Twist>(event.sample()); });
            std::cout << "list " << nervure::Record(event.sample()).get<Vector3>("[1]").y << std::endl;
        }
    }
    return 0;
}
