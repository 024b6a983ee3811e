#include "isoloss/foreign/event_writer.h"

#include <fmt/format.h>

#include <cmath>

#include "isoloss/foreign/protobuf.h"

namespace isoloss::foreign {
namespace {

/// The largest number of ten digits: some time in 2286.
constexpr double kMostSeconds = 9'999'999'999.0;

void AppendRecord(std::string& content, std::string_view payload) {
  std::string length;
  AppendLittleEndian(length, payload.size(), 8);
  content += length;
  AppendLittleEndian(content, MaskedCrc32c(length), 4);
  content += payload;
  AppendLittleEndian(content, MaskedCrc32c(payload), 4);
}

}  // namespace

std::string EventWriter::FirstRecord(double wall_time) {
  std::string source;
  AppendBytes(source, 1, "isoloss");  // SourceMetadata.writer
  std::string event;
  AppendDouble(event, 1, wall_time);
  AppendBytes(event, 3, "brain.Event:2");
  AppendBytes(event, 10, source);
  std::string content;
  AppendRecord(content, event);
  return content;
}

EventWriter::EventWriter(double wall_time) : content_(FirstRecord(wall_time)) {}

void EventWriter::Add(std::string_view tag, int64_t step, double wall_time,
                      float value) {
  std::string summary_value;
  AppendBytes(summary_value, 1, tag);
  AppendFloat(summary_value, 2, value);
  std::string summary;
  AppendBytes(summary, 1, summary_value);
  std::string event;
  AppendDouble(event, 1, wall_time);
  // Protobuf leaves default values out.
  if (step != 0) AppendVarint(event, 2, static_cast<uint64_t>(step));
  AppendBytes(event, 5, summary);
  AppendRecord(content_, event);
}

std::string EventFileName(double wall_time) {
  const bool known = wall_time >= 0 && wall_time <= kMostSeconds;
  return fmt::format("events.out.tfevents.{:010}.isoloss",
                     known ? static_cast<int64_t>(wall_time) : 0);
}

}  // namespace isoloss::foreign
