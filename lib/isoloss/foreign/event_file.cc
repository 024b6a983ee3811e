#include "isoloss/foreign/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/printable.h"
#include "isoloss/foreign/protobuf.h"

namespace isoloss::foreign {
namespace {

/// A payload comes after its length and the checksum of that length.
constexpr size_t kHeadBytes = 12;
/// A record is at most this long; the largest known ones hold a model's graph.
constexpr uint64_t kMostRecordBytes = uint64_t{256} << 20;
/// The payload's checksum follows the payload.
constexpr size_t kTailBytes = 4;
/// A checkout without its large files has a file that begins with this text.
constexpr std::string_view kPointer = "version https://git-lfs";
/// Each read takes this much of a file.
constexpr size_t kWindowBytes = size_t{4} << 20;

// The message Event and its parts have these field numbers.
constexpr uint64_t kEventWallTime = 1;
constexpr uint64_t kEventStep = 2;
constexpr uint64_t kEventSummary = 5;
constexpr uint64_t kSummaryValue = 1;
constexpr uint64_t kValueTag = 1;
constexpr uint64_t kValueSimple = 2;
constexpr uint64_t kValueImage = 4;  // to kValueTensor: fields of one oneof
constexpr uint64_t kValueAudio = 6;
constexpr uint64_t kValueTensor = 8;
constexpr uint64_t kValueMetadata = 9;
constexpr uint64_t kMetadataPlugin = 1;
constexpr uint64_t kMetadataClass = 4;
constexpr uint64_t kPluginName = 1;
constexpr uint64_t kTensorType = 1;
constexpr uint64_t kTensorShape = 2;
constexpr uint64_t kTensorContent = 4;
constexpr uint64_t kTensorFloats = 5;
constexpr uint64_t kTensorDoubles = 6;
constexpr uint64_t kShapeDimension = 2;
constexpr uint64_t kDimensionSize = 1;

// These are values of enums.
constexpr uint64_t kTypeFloat = 1;
constexpr uint64_t kTypeDouble = 2;
constexpr uint64_t kClassScalar = 1;

bool HasSoundLength(std::string_view head) {
  return MaskedCrc32c(head.substr(0, 8)) == LittleEndian(head.substr(8), 4);
}

/// Returns whether the shape holds one element: each dimension has size 1.
bool IsOneElement(std::string_view shape) {
  ProtobufFields fields(shape);
  while (fields.Next()) {
    if (!fields.Is(kShapeDimension, WireType::kBytes)) continue;
    uint64_t size = 0;  // left out
    ProtobufFields dimension(fields.bytes());
    while (dimension.Next()) {
      if (dimension.Is(kDimensionSize, WireType::kVarint)) {
        size = dimension.value();
      }
    }
    if (size != 1) return false;
  }
  return fields.sound();
}

/// This is the field `*_val` of a tensor, packed or not.
struct Elements {
  uint64_t count = 0;
  uint64_t bits = 0;  ///< of the last

  void Take(const ProtobufFields& field, WireType unpacked, size_t bytes) {
    if (field.type() == unpacked) {
      ++count;
      bits = field.value();
    } else if (field.type() == WireType::kBytes && !field.bytes().empty() &&
               field.bytes().size() % bytes == 0) {
      const std::string_view all = field.bytes();
      count += all.size() / bytes;
      bits = LittleEndian(all.substr(all.size() - bytes), bytes);
    }
  }
};

struct Tensor {
  bool one_element = true;
  bool known_type = false;
  double value = 0;
};

/// Reads a tensor. A tensor without elements is zero, as in TensorFlow.
Tensor ParseTensor(std::string_view message) {
  uint64_t type = 0;
  Tensor tensor;
  std::string_view content;
  Elements floats;
  Elements doubles;
  ProtobufFields fields(message);
  while (fields.Next()) {
    if (fields.Is(kTensorType, WireType::kVarint)) type = fields.value();
    if (fields.Is(kTensorShape, WireType::kBytes)) {
      tensor.one_element = tensor.one_element && IsOneElement(fields.bytes());
    }
    if (fields.Is(kTensorContent, WireType::kBytes)) content = fields.bytes();
    if (fields.number() == kTensorFloats) {
      floats.Take(fields, WireType::kFixed32, 4);
    }
    if (fields.number() == kTensorDoubles) {
      doubles.Take(fields, WireType::kFixed64, 8);
    }
  }
  tensor.known_type =
      fields.sound() && (type == kTypeFloat || type == kTypeDouble);
  const size_t bytes = type == kTypeFloat ? 4 : 8;
  Elements& elements = type == kTypeFloat ? floats : doubles;
  if (!content.empty()) {
    if (content.size() != bytes) tensor.one_element = false;
    if (content.size() == bytes) elements = {1, LittleEndian(content, bytes)};
  }
  if (elements.count > 1) tensor.one_element = false;
  const auto single =
      std::bit_cast<float>(static_cast<uint32_t>(elements.bits));
  tensor.value = type == kTypeFloat ? static_cast<double>(single)
                                    : std::bit_cast<double>(elements.bits);
  return tensor;
}

/// Returns whether the metadata of a summary say that its tensor is a scalar.
bool IsScalarPlugin(std::string_view metadata) {
  bool scalar = false;
  ProtobufFields fields(metadata);
  while (fields.Next()) {
    if (fields.Is(kMetadataClass, WireType::kVarint)) {
      scalar = scalar || fields.value() == kClassScalar;
    }
    if (!fields.Is(kMetadataPlugin, WireType::kBytes)) continue;
    ProtobufFields plugin(fields.bytes());
    while (plugin.Next()) {
      if (plugin.Is(kPluginName, WireType::kBytes)) {
        scalar = scalar || plugin.bytes() == "scalars";
      }
    }
  }
  return scalar;
}

/// These are the fields of a Summary.Value, as views of the record.
struct SummaryValue {
  std::string_view tag;
  std::optional<float> simple;
  std::optional<std::string_view> tensor;
  std::optional<std::string_view> metadata;
  bool sound = false;
};

SummaryValue ParseValue(std::string_view message) {
  SummaryValue value;
  ProtobufFields fields(message);
  while (fields.Next()) {
    if (fields.Is(kValueTag, WireType::kBytes)) value.tag = fields.bytes();
    if (fields.Is(kValueMetadata, WireType::kBytes)) {
      value.metadata = fields.bytes();
    }
    // The last field of a oneof counts.
    if (fields.Is(kValueSimple, WireType::kFixed32)) {
      value.simple = fields.AsFloat();
      value.tensor.reset();
    } else if (fields.Is(kValueTensor, WireType::kBytes)) {
      value.simple.reset();
      value.tensor = fields.bytes();
    } else if (fields.number() >= kValueImage &&
               fields.number() <= kValueAudio) {
      value.simple.reset();
      value.tensor.reset();
    }
  }
  value.sound = fields.sound();
  return value;
}

/// Takes a file's bytes, whole records at a time.
class Decoder {
 public:
  explicit Decoder(const std::string& name) : name_(name) {}

  /// Reads the records that `bytes` hold whole; `bytes` follow what was taken
  /// before. Returns the number of bytes that were read.
  size_t Take(std::string_view bytes);

  /// Returns the file. `rest` bytes follow those that were taken.
  EventFile Finish(uint64_t rest);

  bool damaged() const { return !damage_.empty(); }
  /// Returns the size of the last, incomplete record, as far as it is known.
  uint64_t wanted() const { return wanted_; }

 private:
  void TakeEvent(std::string_view payload);
  void TakeValue(const SummaryValue& value, EventScalar point);
  void Add(std::string_view tag, const EventScalar& point);

  const std::string& name_;
  EventFile file_;
  uint64_t offset_ = 0;
  uint64_t wanted_ = 0;
  uint64_t scalars_ = 0;
  uint64_t strange_ = 0;  // records that are no events
  std::string damage_;
  std::set<std::string, std::less<>> scalar_tags_;  // by their metadata
};

void Decoder::Add(std::string_view tag, const EventScalar& point) {
  auto series = file_.series.find(tag);
  if (series == file_.series.end()) {
    if (file_.series.size() == kMostEventTags) {
      ThrowError(ErrorKind::kFormat,
                 "{}: the file has more than {} tags, but a run has fewer. "
                 "Give a file of one run.",
                 name_, kMostEventTags);
    }
    series = file_.series.try_emplace(std::string(tag)).first;
  }
  if (++scalars_ > kMostEventScalars) {
    ThrowError(ErrorKind::kFormat,
               "{}: the file has more than {} scalars, but a run has fewer. "
               "Give a file of one run.",
               name_, kMostEventScalars);
  }
  series->second.push_back(point);
}

void Decoder::TakeValue(const SummaryValue& value, EventScalar point) {
  if (value.simple) {
    point.value = static_cast<double>(*value.simple);
    Add(value.tag, point);
    return;
  }
  if (!value.tensor) return;
  // Some writers give the plugin only with a tag's first value.
  bool scalar = scalar_tags_.contains(value.tag);
  if (value.metadata && !scalar) {
    scalar = IsScalarPlugin(*value.metadata);
    if (scalar && scalar_tags_.size() < kMostEventTags) {
      scalar_tags_.emplace(value.tag);
    }
  }
  if (!scalar) return;
  const Tensor tensor = ParseTensor(*value.tensor);
  if (!tensor.one_element || !tensor.known_type) {
    ++file_.other_tensors;
    return;
  }
  point.value = tensor.value;
  Add(value.tag, point);
}

void Decoder::TakeEvent(std::string_view payload) {
  EventScalar point;
  ProtobufFields fields(payload);
  bool has_summary = false;
  while (fields.Next()) {
    if (fields.Is(kEventWallTime, WireType::kFixed64)) {
      point.wall_time = fields.AsDouble();
    }
    if (fields.Is(kEventStep, WireType::kVarint)) {
      point.step = static_cast<int64_t>(fields.value());
    }
    has_summary = has_summary || fields.Is(kEventSummary, WireType::kBytes);
  }
  if (!fields.sound()) ++strange_;
  if (!fields.sound() || !has_summary) return;
  // The step may follow the summary, so the fields are read a second time.
  ProtobufFields again(payload);
  while (again.Next()) {
    if (!again.Is(kEventSummary, WireType::kBytes)) continue;
    ProtobufFields summary(again.bytes());
    while (summary.Next()) {
      if (!summary.Is(kSummaryValue, WireType::kBytes)) continue;
      const SummaryValue value = ParseValue(summary.bytes());
      if (value.sound) TakeValue(value, point);
    }
  }
}

size_t Decoder::Take(std::string_view bytes) {
  size_t taken = 0;
  while (!damaged()) {
    const std::string_view rest = bytes.substr(taken);
    wanted_ = kHeadBytes;
    if (rest.size() < kHeadBytes) break;
    if (!HasSoundLength(rest)) {
      damage_ = "length";
      break;
    }
    const uint64_t length = LittleEndian(rest, 8);
    if (length > kMostRecordBytes) {
      damage_ = "length";
      break;
    }
    wanted_ = kHeadBytes + length + kTailBytes;
    if (rest.size() < wanted_) break;
    const std::string_view payload = rest.substr(kHeadBytes, length);
    if (MaskedCrc32c(payload) !=
        LittleEndian(rest.substr(kHeadBytes + length), kTailBytes)) {
      damage_ = "content";
      break;
    }
    TakeEvent(payload);
    ++file_.records;
    taken += wanted_;
    offset_ += wanted_;
  }
  return taken;
}

EventFile Decoder::Finish(uint64_t rest) {
  std::vector<std::string> notes;
  file_.lost_bytes = rest;
  const uint64_t all = offset_ + rest;
  if (damaged()) {
    notes.push_back(fmt::format(
        "the {} of record {}, at byte {}, does not agree with its checksum: "
        "the file is damaged, and {} of {} bytes from there on were not read",
        damage_, file_.records + 1, offset_, rest, all));
  } else if (rest > 0) {
    notes.push_back(
        fmt::format("the file ends within record {}, as that of a live or "
                    "killed run: the last {} of {} bytes were not read",
                    file_.records + 1, rest, all));
  }
  if (strange_ > 0) {
    notes.push_back(
        fmt::format("{} of {} records are no events and were left "
                    "out",
                    strange_, file_.records));
  }
  if (file_.other_tensors > 0) {
    notes.push_back(
        fmt::format("{} values of the plugin scalars are no single FP32 or "
                    "FP64 value and were left out",
                    file_.other_tensors));
  }
  for (const std::string& note : notes) {
    file_.note +=
        fmt::format("{}{}: {}.", file_.note.empty() ? "" : " ", name_, note);
  }
  return std::move(file_);
}

/// Checks the beginning of a file; `head` has up to kPointer's length.
void CheckFront(std::string_view head, const std::string& name) {
  if (head.starts_with(kPointer)) {
    ThrowError(ErrorKind::kFormat,
               "{}: the file is a pointer of git-lfs, three lines of text in "
               "place of the event file. Fetch the file: git lfs pull.",
               name);
  }
  if (head.size() >= kHeadBytes && !HasSoundLength(head)) {
    ThrowError(ErrorKind::kFormat,
               "{}: the first 12 bytes are no length with its checksum, but a "
               "record of an event file begins so. Give a file that "
               "TensorBoard reads, events.out.tfevents.*.",
               name);
  }
}

}  // namespace

bool LooksLikeEventFile(std::string_view head) {
  if (head.size() < kHeadBytes || !HasSoundLength(head)) return false;
  if (head.size() == kHeadBytes) return true;
  ProtobufFields fields(head.substr(kHeadBytes));
  // Field 1 of tf.Example (a data set) is a message; that of an event is not.
  return !fields.Next() || !fields.Is(kEventWallTime, WireType::kBytes);
}

EventFile ParseEventFile(std::string_view content, const std::string& name) {
  const std::string shown = Printable(name);
  CheckFront(content, shown);
  Decoder decoder(shown);
  const size_t taken = decoder.Take(content);
  return decoder.Finish(content.size() - taken);
}

EventFile ReadEventFile(const std::filesystem::path& path) {
  const std::string shown = Printable(path.string());
  const Descriptor file = OpenFile(path);
  const uint64_t size = FileSize(file, path);
  Decoder decoder(shown);
  std::string window;  // its first bytes are erased once they are taken
  uint64_t read = 0;
  while (read < size && !decoder.damaged()) {
    // A forged length never asks for more bytes than the file has.
    const uint64_t missing =
        decoder.wanted() - std::min<uint64_t>(decoder.wanted(), window.size());
    const uint64_t more = std::min<uint64_t>(
        size - read, std::max<uint64_t>(kWindowBytes, missing));
    const size_t kept = window.size();
    window.resize(kept + more);
    ReadAll(file, read, std::as_writable_bytes(std::span(window).subspan(kept)),
            path);
    if (read == 0) CheckFront(window, shown);
    read += more;
    window.erase(0, decoder.Take(window));
    if (window.capacity() > 4 * kWindowBytes && window.size() < kWindowBytes) {
      window.shrink_to_fit();  // a graph was read
    }
  }
  return decoder.Finish(size - read + window.size());
}

namespace {

/// Sorts by step and keeps the last point of each; returns how many it removed.
uint64_t KeepLastOfEachStep(std::vector<EventScalar>& points) {
  if (!std::ranges::is_sorted(points, {}, &EventScalar::step)) {
    std::ranges::stable_sort(points, {}, &EventScalar::step);
  }
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const bool last =
        i + 1 == points.size() || points[i + 1].step != points[i].step;
    if (last) points[kept++] = points[i];
  }
  const uint64_t gone = points.size() - kept;
  points.resize(kept);
  return gone;
}

}  // namespace

EventFile MergeEventFiles(const std::vector<EventFile>& files) {
  EventFile run;
  const size_t count = files.size();
  for (const EventFile& file : files) {
    for (const auto& [tag, points] : file.series) {
      std::vector<EventScalar>& all = run.series[tag];
      all.insert(all.end(), points.begin(), points.end());
    }
    run.records += file.records;
    run.lost_bytes += file.lost_bytes;
    run.other_tensors += file.other_tensors;
    run.repeated_steps += file.repeated_steps;
    if (file.note.empty()) continue;
    if (!run.note.empty()) run.note += ' ';
    run.note += file.note;
  }
  uint64_t repeated = 0;
  std::string example;
  for (auto& [tag, points] : run.series) {
    const uint64_t gone = KeepLastOfEachStep(points);
    if (gone > 0 && repeated == 0) example = tag;
    repeated += gone;
  }
  run.repeated_steps += repeated;
  if (repeated > 0) {
    if (!run.note.empty()) run.note += ' ';
    run.note += fmt::format(
        "{} values of {} file{} are of steps that were written again later, as "
        "by a resumed run ({}): the later ones count.",
        repeated, count, count == 1 ? "" : "s", Printable(example));
  }
  return run;
}

}  // namespace isoloss::foreign
