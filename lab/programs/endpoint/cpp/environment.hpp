// The clock of the lab, and the values that it passes to an endpoint.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

inline std::int64_t monotonic_nanos() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

inline const char* environment(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) {
        std::cerr << "error: " << name << " is not set: the lab starts this program\n";
        std::exit(2);
    }
    return value;
}

// Returns the number of a key of the case, which is flat JSON; 0 without the key.
inline double number_of(const std::string& case_text, const std::string& key) {
    const auto at = case_text.find("\"" + key + "\":");
    return at == std::string::npos ? 0.0 : std::atof(case_text.c_str() + at + key.size() + 3);
}

// Returns the text of a key of the case; the text must have no escapes.
inline std::string text_of(const std::string& case_text, const std::string& key) {
    const std::string before = "\"" + key + "\": \"";
    const auto at = case_text.find(before);
    if (at == std::string::npos) {
        std::cerr << "error: the case has no " << key << "\n";
        std::exit(2);
    }
    const auto begin = at + before.size();
    return case_text.substr(begin, case_text.find('"', begin) - begin);
}
