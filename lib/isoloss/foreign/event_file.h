// Reads the scalars of TensorBoard's event files without TensorFlow.
//
// A file consists of records: length (8 bytes), masked CRC-32C of the length
// (4), payload, masked CRC-32C of the payload (4), all little-endian. The
// payload is a protobuf message Event. ParseEventFile says what is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::foreign {

/// A reader takes this many scalars of one file, 24 bytes each.
inline constexpr uint64_t kMostEventScalars = uint64_t{1} << 26;
/// A reader takes this many tags of one file.
inline constexpr uint64_t kMostEventTags = uint64_t{1} << 16;

/// Units     wall_time in seconds since 1970.
/// Special   step may be 0 or negative; value may be NaN or infinite.
struct EventScalar {
  int64_t step = 0;
  double wall_time = 0;
  double value = 0;  ///< an FP32 one exactly, as most writers have it

  bool operator==(const EventScalar&) const = default;
};

using EventSeries =
    std::map<std::string, std::vector<EventScalar>, std::less<>>;

struct EventFile {
  EventSeries series;           ///< by tag; points as they follow in the file
  uint64_t records = 0;         ///< whole ones, of any content
  uint64_t lost_bytes = 0;      ///< after the last whole record
  uint64_t other_tensors = 0;   ///< scalars of a type that is not known
  uint64_t repeated_steps = 0;  ///< of all tags; only MergeEventFiles counts
  std::string note;             ///< what is wrong, in sentences; "": nothing
};

/// Returns whether a file that begins with `head` holds records of events. 13
/// bytes suffice; fewer than 12 are never enough.
bool LooksLikeEventFile(std::string_view head);

/// Reads the scalars of a file's content: `simple_value`, and tensors of one
/// FP32 or FP64 value of the plugin `scalars`. Everything else is skipped.
/// Messages begin with `name`.
/// Special  A file that ends within a record, as that of a live or killed run,
///          or that has a wrong checksum, is read up to there: `lost_bytes` and
///          `note` say so. No bytes at all, or no scalars, are an empty run.
/// Errors   FormatError if these are no records, are a pointer of git-lfs in
///          place of the file, or if there are more than kMostEventScalars or
///          kMostEventTags.
/// Cost     0.4 s for a million scalars; memory for the scalars.
/// Source   tensorflow/core/lib/io/record_writer.h, util/event.proto,
///          framework/summary.proto and framework/tensor.proto.
EventFile ParseEventFile(std::string_view content, const std::string& name);

/// Reads a file as ParseEventFile reads its content. Memory holds the scalars
/// and never more than 4 MiB of the file, or its largest record. A file that
/// grows is read up to the length that it has when it is opened.
/// Errors   as ParseEventFile; IoError if it can't be read.
EventFile ReadEventFile(const std::filesystem::path& file);

/// Makes one run from the files of its starts, in their order. Points of a tag
/// are sorted by step. If a step occurs several times, the value of the later
/// file counts, and within a file the last one. `repeated_steps` counts such
/// steps, once for each removed value, and `note` has a sentence on them.
EventFile MergeEventFiles(const std::vector<EventFile>& files);

}  // namespace isoloss::foreign
