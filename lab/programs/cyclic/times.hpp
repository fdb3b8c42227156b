// Times of the turns of a loop, in memory that is touched before the first turn.
#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

class Times {
public:
    explicit Times(const char *file) : file_(file), nanos_(MOST) {}

    void add(std::int64_t nanos) {
        if (count_ < MOST) nanos_[count_++] = nanos;
    }

    // Writes the file: the times in nanoseconds, as 64-bit integers.
    bool write() const {
        std::FILE *file = std::fopen(file_, "wb");
        if (file == nullptr) return false;
        const bool is_written = std::fwrite(nanos_.data(), sizeof(std::int64_t), count_, file) == count_;
        return std::fclose(file) == 0 && is_written;
    }

private:
    static constexpr std::size_t MOST = 1 << 20;
    const char *file_;
    std::vector<std::int64_t> nanos_;
    std::size_t count_ = 0;
};
