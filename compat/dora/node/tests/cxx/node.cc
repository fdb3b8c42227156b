/* The nodes of the tests in C++: `node ROLE FILE`. They write their events to the file. */
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "dora-node-api.h"

/* The structures of the Arrow C data interface. */
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    ArrowSchema **children, *dictionary;
    void (*release)(ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    ArrowArray **children, *dictionary;
    void (*release)(ArrowArray *);
    void *private_data;
};

static const int32_t NUMBERS[] = {10, 100};
static const void *BUFFERS[] = {nullptr, NUMBERS};

static uint8_t *bytes_of(auto &structure)
{
    return reinterpret_cast<uint8_t *>(&structure);
}

static rust::Slice<const uint8_t> slice(const std::vector<uint8_t> &bytes)
{
    return {bytes.data(), bytes.size()};
}

static std::string error_of(const DoraResult &result)
{
    return std::string(result.error);
}

/* The message of the exception that `call` throws. */
static std::string thrown(auto call)
{
    try {
        call();
        return "nothing";
    } catch (const std::exception &error) {
        return error.what();
    }
}

static void source(DoraNode node, std::ofstream &seen)
{
    seen << "config " << std::string(node_config_json(node.send_output)) << '\n';
    auto descriptor = thrown([&] { dataflow_descriptor_json(node.send_output); });
    seen << "no descriptor " << (descriptor.find("not the dataflow") != std::string::npos) << '\n';
    auto event = node.events->next();
    seen << "tick " << (event_type(event) == DoraEventType::Input) << '\n';
    auto tick = event_as_input(std::move(event));
    seen << std::string(tick.id) << ' ' << tick.data.size() << '\n';

    seen << "sent " << error_of(send_output(node.send_output, "bytes", slice({97, 98}))) << '\n';
    auto metadata = new_metadata();
    metadata->set_string("encoding", "mono8");
    metadata->set_int("width", 4);
    metadata->set_float("gain", 0.5);
    metadata->set_bool("last", true);
    metadata->set_list_string("notes", {"a", "b"});
    metadata->set_timestamp("at", 1500000001);
    auto sent = send_output_with_metadata(node.send_output, "bytes", slice({}), std::move(metadata));
    seen << "sent " << error_of(sent) << '\n';

    ArrowArray array = {2, 0, 0, 2, 0, BUFFERS, nullptr, nullptr, [](ArrowArray *a) { a->release = nullptr; }, nullptr};
    ArrowSchema schema = {"i", "", nullptr, 0, 0, nullptr, nullptr, [](ArrowSchema *s) { s->release = nullptr; }, nullptr};
    sent = send_arrow_output(node.send_output, "numbers", bytes_of(array), bytes_of(schema), new_metadata());
    seen << "sent " << error_of(sent) << " released " << (array.release == nullptr) << '\n';
    seen << "null: " << error_of(send_arrow_output(node.send_output, "numbers", nullptr, bytes_of(schema))) << '\n';
    seen << "name: " << error_of(send_output(node.send_output, "no name", slice({}))) << '\n';
    seen << "close: " << error_of(close_outputs(node.send_output, {"undeclared"})) << '\n';
    log_message(node.send_output, "warn", "battery low");
}

static void write_input(rust::Box<DoraEvent> event, std::ofstream &seen)
{
    ArrowArray array;
    ArrowSchema schema;
    auto input = event_as_arrow_input_with_info(std::move(event), bytes_of(array), bytes_of(schema));
    seen << std::string(input.id) << ": " << schema.format << ' ' << array.length << ' ' << std::string(input.error);
    for (auto key : input.metadata->list_keys())
        seen << ' ' << std::string(key) << '=' << std::string(input.metadata->get_json(key));
    seen << ' ' << (input.metadata->timestamp() >> 32 > 1700000000) << '\n';
    array.release(&array);
    schema.release(&schema);
}

static void sink(DoraNode node, std::ofstream &seen)
{
    seen << "early " << (event_type(next_event_timeout(node.events, 0)) == DoraEventType::Timeout);
    seen << (event_type(try_next_event(node.events)) == DoraEventType::Empty) << events_is_empty(node.events) << '\n';
    send_output(node.send_output, "ready", slice({}));
    for (;;) {
        auto event = next_event_timeout(node.events, UINT64_MAX);
        auto type = event_type(event);
        if (type == DoraEventType::Input) {
            write_input(std::move(event), seen);
        } else if (type == DoraEventType::AllInputsClosed) {
            break;
        } else {
            seen << "type " << static_cast<int>(type) << '\n';
        }
    }
    seen << "drained " << drained_events_len(drain_events(node.events)) << '\n';
    auto combined = dora_events_into_combined(std::move(node.events));
    auto end = combined.next();
    seen << "dora " << end.is_dora() << '\n';
    seen << "end " << (event_type(downcast_dora(std::move(end))) == DoraEventType::AllInputsClosed) << '\n';
    auto none = empty_combined_events().next();
    seen << "not an input: " << thrown([&] { event_as_input(downcast_dora(std::move(none))); }) << '\n';
}

static void client(DoraNode node, std::ofstream &seen)
{
    auto refused = recv_service_response(node.events, "x", "not/a name", 1);
    seen << "refused " << (refused.status == DoraPatternStatus::InvalidArgument) << '\n';
    ArrowArray array = {1, 0, 0, 2, 0, BUFFERS, nullptr, nullptr, [](ArrowArray *a) { a->release = nullptr; }, nullptr};
    static const int64_t twenty = 20;
    static const void *buffers[] = {nullptr, &twenty};
    array.buffers = buffers;
    ArrowSchema schema = {"l", "", nullptr, 0, 0, nullptr, nullptr, [](ArrowSchema *s) { s->release = nullptr; }, nullptr};
    auto request = send_arrow_service_request(node.send_output, "request", bytes_of(array), bytes_of(schema), new_metadata());
    auto reply = recv_service_response(node.events, std::string(request.request_id), "server", UINT64_MAX);
    seen << "matched " << (reply.status == DoraPatternStatus::Matched) << std::string(reply.error) << '\n';
    ArrowArray result;
    ArrowSchema type;
    event_as_arrow_input(std::move(reply.event), bytes_of(result), bytes_of(type));
    seen << type.format << ' ' << static_cast<const int64_t *>(result.buffers[1])[result.offset] << '\n';
    result.release(&result);
    type.release(&type);
    auto late = recv_service_response(node.events, "other", "server", 60000);
    seen << "ended " << (late.status == DoraPatternStatus::StreamEnded) << '\n';
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    std::ofstream seen(arguments[2]);
    std::string role(arguments[1]);
    try {
        auto node = init_dora_node();
        if (role == "source")
            source(std::move(node), seen);
        else if (role == "client")
            client(std::move(node), seen);
        else
            sink(std::move(node), seen);
    } catch (const std::exception &error) {
        seen << "thrown: " << error.what() << '\n';
        return 3;
    }
    return 0;
}
