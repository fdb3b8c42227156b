/* The operator of the tests in C++. */
#pragma once
#include <memory>

class Operator
{
public:
    ~Operator();
    int count = 0;
};

#include "dora-operator-api.h"

std::unique_ptr<Operator> new_operator();
DoraOnInputResult on_input(Operator &op, rust::Str id, rust::Slice<const uint8_t> data, OutputSender &sender);
DoraOnInputResult on_input_closed(Operator &op, rust::Str id, OutputSender &sender);
DoraOnInputResult on_stop(Operator &op, OutputSender &sender);
DoraOnInputResult on_input_parse_error(Operator &op, rust::Str id, rust::Str error, OutputSender &sender);
