// Counts the calls of the allocator, and the system calls other than futex, on the data path of a node.
//
// `pulse` sends a sample at each tick, once it has the previous answer; `echo` answers. The number of samples that `echo`
// holds depends on their arrival times, so in the first rounds it holds more than ever later, and the pools grow to their
// final size. The node runs on a thread of its own, since a thread cannot leave the filter of system calls again; the
// control thread is not counted.
#include <nervure.hpp>
#include <nervure_types.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

// Rounds in which the pools grow and the caches fill.
constexpr int WARM_UP = 100;
// The samples that `echo` holds at a time in the first rounds. Later it holds three at most: the numbers, the newest text,
// and the previous text.
constexpr int HELD = 6;
// More than a second of the pulse, in which each once-a-second task of the node has its turn.
constexpr int ROUNDS = 700;
// More than fits into a slot of the ring.
constexpr std::size_t NUMBERS = 1024;

thread_local bool counts = false;
thread_local int allocations = 0;

void count() noexcept {
    if (counts) {
        allocations += 1;
    }
}

// Prints the number of the forbidden system call, and ends the process.
void report_call(int, siginfo_t *info, void *) {
    char text[] = "the data path made system call      \n";
    std::size_t at = sizeof text - 3;
    for (int number = info->si_syscall; number > 0; number /= 10) {
        text[at--] = static_cast<char>('0' + number % 10);
    }
    (void)!write(1, text, sizeof text - 1);
    _exit(1);
}

// Allows this thread futex, and the calls at the end of the process. Any other call raises SIGSYS.
void filter_system_calls() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {sizeof program / sizeof *program, program};
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = report_call;
    if (sigaction(SIGSYS, &action, nullptr) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        std::perror("cannot filter system calls");
        std::_Exit(1);
    }
}

// Counts the rounds of a node. Returns true after the last one.
bool is_last(int round) {
    if (round == WARM_UP) {
        filter_system_calls();
        allocations = 0;
        counts = true;
    }
    counts = counts && round < WARM_UP + ROUNDS;
    return round == WARM_UP + ROUNDS;
}

// A struct that has both: fields with values and without.
nervure::types::Imu measured(int round) {
    nervure::types::Imu imu;
    imu.linear_acceleration.z = round;
    imu.orientation.emplace();
    imu.orientation_covariance.emplace();
    return imu;
}

void pulse(nervure::Node &node, void (*disturb)()) {
    const nervure::Output numbers = node.output("numbers");
    const nervure::Output imu = node.output("imu");
    const nervure::Output text = node.output("text");
    nervure::Metadata metadata;
    metadata.set("side", "left");
    int sent = 0;
    int answered = 0;
    // A controller that waits with a timeout, to do other work.
    while (true) {
        const nervure::Event event = node.next_for(std::chrono::microseconds(300));
        if (!event) {
            continue;
        }
        if (event.is_tick("tick") && sent == answered) {
            disturb();
            nervure::Loan<float> loan = numbers.loan<float>({NUMBERS});
            loan[0] = static_cast<float>(sent);
            const nervure::Envelope envelope = nervure::Envelope().stamp(event.get().due).metadata(metadata).frame("arm");
            std::move(loan).send(envelope);
            text.send("small enough for its slot");
            imu.send(measured(sent), envelope);
            sent += 1;
        } else if (event.is_input("back")) {
            if (event.sample().tensor<float>()[0] != static_cast<float>(answered)) {
                throw std::runtime_error("another answer");
            }
            answered += 1;
            if (is_last(answered)) {
                return;
            }
        } else if (event.is_stop()) {
            throw std::runtime_error("it was stopped early");
        }
    }
}

void echo(nervure::Node &node, void (*disturb)()) {
    const nervure::Output out = node.output("out");
    int answered = 0;
    std::vector<nervure::Sample> held;
    held.reserve(HELD);
    while (const nervure::Event event = node.next()) {
        if (event.is_input("numbers")) {
            disturb();
            const nervure::SampleView sample = event.sample();
            const nervure::TensorView<float> numbers = sample.tensor<float>();
            if (sample.info().latency > 10'000'000'000) {
                throw std::runtime_error("a sample of another time");
            }
            if (const std::optional<nervure::Sample> text = node.latest("text")) {
                (void)text->view().text();
            }
            if (const std::optional<nervure::Sample> newest = node.latest("imu")) {
                const nervure::types::Imu imu = nervure::read<nervure::types::Imu>(newest->view());
                if (imu.linear_acceleration.z > answered || !imu.orientation || imu.angular_velocity_covariance) {
                    throw std::runtime_error("another measurement");
                }
            }
            nervure::Loan<float> loan = out.loan<float>({numbers.size()});
            std::copy(numbers.begin(), numbers.end(), loan.begin());
            std::move(loan).send(nervure::Envelope().like(sample));
            if (answered < HELD) {
                held.emplace_back(sample);
            } else {
                held.clear();
            }
            answered += 1;
            if (is_last(answered)) {
                return;
            }
        } else if (event.is_stop()) {
            throw std::runtime_error("it was stopped early");
        }
    }
}

int run(const std::string &role) {
    // Never disconnected: a disconnect sends a message, which the filter does not allow.
    static nervure::Node node = nervure::Node::connect();
    const std::string disturbance = static_cast<const char *>(node.param("disturbance").as.bytes.data);
    void (*disturb)() = [] {};
    if (disturbance == "allocation") {
        disturb = [] { std::free(std::malloc(1)); };
    } else if (disturbance == "call") {
        disturb = [] { (void)getppid(); };
    }
    if (role == "pulse") {
        pulse(node, disturb);
    } else {
        echo(node, disturb);
    }
    return allocations;
}

} // namespace

// The allocator of the C library, which counts its calls on the threads that ask for it.
extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);
void __libc_free(void *);

void *malloc(std::size_t bytes) noexcept {
    count();
    return __libc_malloc(bytes);
}

void *calloc(std::size_t number, std::size_t bytes) noexcept {
    count();
    return __libc_calloc(number, bytes);
}

void *realloc(void *block, std::size_t bytes) noexcept {
    count();
    return __libc_realloc(block, bytes);
}

void *memalign(std::size_t alignment, std::size_t bytes) noexcept {
    count();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block, std::size_t alignment, std::size_t bytes) noexcept {
    count();
    *block = __libc_memalign(alignment, bytes);
    return *block == nullptr ? ENOMEM : 0;
}

void free(void *block) noexcept {
    count();
    __libc_free(block);
}
}

int main(int, char **arguments) {
    const std::string role = arguments[1];
    std::promise<int> counted;
    std::thread([&] {
        try {
            counted.set_value(run(role));
        } catch (const std::exception &error) {
            std::fprintf(stderr, "error: %s\n", error.what());
            std::_Exit(1);
        }
        // The filter allows nothing but to wait.
        std::promise<void>().get_future().wait();
    }).detach();
    const int calls = counted.get_future().get();
    std::printf("%d calls of the allocator in %d rounds\n", calls, ROUNDS);
    std::fflush(stdout);
    std::_Exit(calls == 0 ? 0 : 1);
}
