#include <nervure_types.hpp>

#include <cassert>
#include <string>

using namespace nervure::types;

struct Names {
    std::string all;

    template <typename Value> void operator()(const char *name, const Value &) {
        all += name;
        all += ' ';
    }
};

int main() {
    static_assert(Imu::nervure_type == "std/Imu@1");
    static_assert(NavSatStatus::STATUS_NO_FIX == -1);
    Odometry odometry;
    odometry.pose.pose.position.x = 1.5;
    odometry.pose.covariance.emplace().back() = 0.5;
    assert(odometry.pose.pose.orientation.w == 1.0 && odometry.pose.covariance->size() == 36);
    Names names;
    Quaternion::visit(static_cast<const Quaternion &>(Quaternion()), names);
    assert(names.all == "x y z w ");
    Imu imu;
    Imu::visit(imu, names);
    assert(!imu.orientation.has_value());
}
