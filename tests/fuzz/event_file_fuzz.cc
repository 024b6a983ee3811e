// Any bytes as an event file: refused with an Error, or scalars that can be
// merged, written and read again.
#include <limits>
#include <string>
#include <vector>

#include "../foreign/event_file_bytes.h"
#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/foreign/event_file.h"

namespace {

using namespace isoloss;                // NOLINT(google-build-using-namespace)
using namespace isoloss::test_support;  // NOLINT(google-build-using-namespace)

/// Checksums hide the payload from what changes bytes at random; so the input
/// is taken as one payload, too.
void Read(const std::string& bytes) {
  try {
    const foreign::EventFile file = foreign::ParseEventFile(bytes, "events");
    ISOLOSS_ASSERT(file.lost_bytes <= bytes.size());
    ISOLOSS_ASSERT(file.note.empty() ? file.lost_bytes == 0 : true);
    size_t points = 0;
    std::string written = VersionRecord();
    for (const auto& [tag, series] : file.series) {
      points += series.size();
      for (const foreign::EventScalar& point : series) {
        written +=
            SimpleEvent(point.step, tag, static_cast<float>(point.value));
      }
    }
    const foreign::EventFile again = foreign::ParseEventFile(written, "again");
    ISOLOSS_ASSERT(again.note.empty() && again.records == points + 1);
    const foreign::EventFile run = foreign::MergeEventFiles({file, again});
    ISOLOSS_ASSERT(run.series.size() == file.series.size());
    ISOLOSS_ASSERT(points == 0 || run.repeated_steps >= points);
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  foreign::LooksLikeEventFile(bytes);
  Read(bytes);
  Read(Record(bytes));
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  const std::string fp32 = Whole(1, 1) + Text(2, Text(2, Whole(1, 1)));
  const std::string fp64 = Whole(1, 2) + Text(2, "");
  const std::string file =
      VersionRecord() + SimpleEvent(1, "loss", 2.5F) +
      SimpleEvent(-1, "loss", std::numeric_limits<float>::infinity()) +
      TensorEvent(2, "lr", fp32 + Text(4, Fp32Bytes(0.5F))) +
      TensorEvent(3, "lr", fp32 + Text(5, Fp32Bytes(0.5F))) +
      TensorEvent(4, "lr", fp64 + Fp64(6, 0.5));
  std::vector<std::string> seeds = {file};
  // Payloads without their records.
  for (const std::string& record :
       {VersionRecord(), SimpleEvent(1, "loss", 2.5F),
        TensorEvent(2, "lr", fp32 + Fp32(5, 0.5F)),
        TensorEvent(3, "lr", fp64 + Text(4, Fp64Bytes(0.5)))}) {
    seeds.push_back(record.substr(12, record.size() - 16));
  }
  return seeds;
}
