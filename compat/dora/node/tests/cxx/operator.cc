/* The operator of the tests in C++. The environment variable MODE lets it fail or stop. */
#include "operator.h"

#include <cstdlib>
#include <iostream>
#include <string>

static bool is_mode(const char *mode)
{
    const char *is = std::getenv("MODE");
    return is != nullptr && std::string(is) == mode;
}

static DoraOnInputResult result()
{
    return {is_mode("event") ? "lens covered" : "", is_mode("stop")};
}

Operator::~Operator()
{
    std::cout << "dropped after " << count << std::endl;
}

std::unique_ptr<Operator> new_operator()
{
    return is_mode("init") ? nullptr : std::make_unique<Operator>();
}

DoraOnInputResult on_input(Operator &op, rust::Str id, rust::Slice<const uint8_t> data, OutputSender &sender)
{
    std::cout << "input " << std::string(id) << ' ' << data.size() << std::endl;
    std::string text = "number " + std::to_string(++op.count);
    rust::Slice<const uint8_t> bytes(reinterpret_cast<const uint8_t *>(text.data()), text.size());
    bool sent = send_output(sender, "text", bytes).error.empty();
    bool undeclared = send_output(sender, "undeclared", bytes).error.empty();
    std::cout << "sent " << sent << ' ' << undeclared << std::endl;
    return result();
}

DoraOnInputResult on_input_closed(Operator &, rust::Str id, OutputSender &)
{
    std::cout << "closed " << std::string(id) << std::endl;
    return result();
}

DoraOnInputResult on_stop(Operator &, OutputSender &)
{
    std::cout << "stop" << std::endl;
    return result();
}

DoraOnInputResult on_input_parse_error(Operator &, rust::Str id, rust::Str error, OutputSender &)
{
    std::cout << "error " << std::string(id) << std::string(error) << std::endl;
    return result();
}
