// Loads a file of XML profiles as an application does, and prints the resulting defaults: `PROGRAM FILE`.

#include <unistd.h>

#include <iostream>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>

#include "bytes_type.hpp"

using namespace eprosima::fastdds::dds;

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "error: expected a file of profiles\n";
        return 2;
    }
    auto* factory = DomainParticipantFactory::get_instance();
    if (factory->load_XML_profiles_file(words[1]) != ReturnCode_t::RETCODE_OK) {
        return 1;
    }
    auto* participant = factory->create_participant(0, factory->get_default_participant_qos());
    if (participant == nullptr) {
        return 1;
    }
    TypeSupport type(new BytesType(64));
    type.register_type(participant);
    auto* topic = participant->create_topic("lab", "Bytes", TOPIC_QOS_DEFAULT);
    auto* writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)->create_datawriter(topic, DATAWRITER_QOS_DEFAULT);
    auto* reader =
        participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, DATAREADER_QOS_DEFAULT, nullptr);
    if (writer == nullptr || reader == nullptr) {
        return 1;
    }
    const auto& written = writer->get_qos();
    const auto& read = reader->get_qos();
    const auto& times = written.reliable_writer_qos().times;
    std::cout << "{\"transports\": " << participant->get_qos().transport().user_transports.size()
              << ", \"builtin\": " << participant->get_qos().transport().use_builtin_transports
              << ", \"keep_all\": " << (written.history().kind == KEEP_ALL_HISTORY_QOS)
              << ", \"history\": " << written.resource_limits().max_samples
              << ", \"reader_history\": " << read.resource_limits().max_samples
              << ", \"reliable\": " << (read.reliability().kind == RELIABLE_RELIABILITY_QOS)
              << ", \"heartbeat_nanos\": " << times.heartbeatPeriod.to_ns()
              << ", \"response_nanos\": " << times.nackResponseDelay.to_ns()
              << ", \"blocking_nanos\": " << written.reliability().max_blocking_time.to_ns()
              << ", \"piggyback_disabled\": " << written.reliable_writer_qos().disable_heartbeat_piggyback
              << ", \"asynchronous\": " << (written.publish_mode().kind == ASYNCHRONOUS_PUBLISH_MODE) << "}" << std::endl;
    _exit(0);  // Deleting the entities takes a second.
}
