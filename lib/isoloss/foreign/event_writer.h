// Writes scalars as a TensorBoard event file (event_file.h has the format).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isoloss::foreign {

/// The content of a file: one record for each scalar, as torch's SummaryWriter
/// writes them. Equal calls give equal bytes.
class EventWriter {
 public:
  /// Units    wall_time in seconds since 1970, here and below.
  explicit EventWriter(double wall_time);

  /// Special  step may be 0 or negative; value may be NaN or infinite.
  void Add(std::string_view tag, int64_t step, double wall_time, float value);

  const std::string& content() const { return content_; }

  /// The record with which each file of this writer and time begins: the
  /// version of the format, and who wrote it.
  static std::string FirstRecord(double wall_time);

 private:
  std::string content_;
};

/// "events.out.tfevents.1700000000.isoloss": a name that TensorBoard looks for,
/// without the host's, so that it depends on the time only.
std::string EventFileName(double wall_time);

}  // namespace isoloss::foreign
