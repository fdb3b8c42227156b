// A pendulum on a cart: its acceleration is commanded; the positions of cart and pendulum are measured, with noise.
#include <nervure.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

static void run(nervure::Node node) {
    constexpr double STEP = 0.002, GRAVITY = 9.81, LENGTH = 1.0, FALLEN = 1.0;
    const nervure::Output measured = node.output("measured");
    std::mt19937 random(1);
    std::normal_distribution<double> noise_in_position(0, 0.001), noise_in_angle(0, 0.002);
    double position = 0, speed = 0, angle = 0.15, turn_rate = 0, acceleration = 0;
    int falls = 0;
    while (const nervure::Event event = node.next()) {
        if (event.is_input("command")) {
            acceleration = std::clamp(event.sample().number(), -15.0, 15.0);
        } else if (event.is_tick("tick")) {
            speed += acceleration * STEP;
            turn_rate += (GRAVITY * std::sin(angle) - acceleration * std::cos(angle)) / LENGTH * STEP;
            position += speed * STEP;
            angle += turn_rate * STEP;
            if (std::abs(angle) > FALLEN) {
                falls += 1;
                position = speed = turn_rate = acceleration = 0;
                angle = 0.15;
            }
            nervure::Loan<double> loan = measured.loan<double>({2});
            loan[0] = position + noise_in_position(random);
            loan[1] = angle + noise_in_angle(random);
            std::move(loan).send(nervure::Envelope().stamp(event.get().due));
        }
    }
    std::cout << "the pendulum fell " << falls << " times, and stands at " << std::round(angle * 1000) << " mrad" << std::endl;
}

NERVURE_COMPONENT(run)
