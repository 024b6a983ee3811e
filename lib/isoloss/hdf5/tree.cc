#include "isoloss/hdf5/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/hdf5/isolated.h"
#include "isoloss/hdf5/read_limit.h"
#include "isoloss/hdf5/stream.h"
#include "isoloss/hdf5/walk.h"

namespace isoloss::hdf5 {
namespace {

/// Describes one ValueType.
struct TypeFacts {
  std::string_view name;
  size_t bytes;
};
constexpr TypeFacts kTypes[] = {{"unsigned 8-bit integer", 1},
                                {"32-bit float", 4},
                                {"signed 32-bit integer", 4},
                                {"signed 64-bit integer", 8},
                                {"64-bit float", 8},
                                {"8-bit enumeration FALSE, TRUE", 1},
                                {"variable-length UTF-8 string", 0},
                                {"other", 0}};
static_assert(std::size(kTypes) == static_cast<size_t>(ValueType::kOther) + 1);

/// The stream breaks the rules of stream.h: the process that made it went
/// astray.
class BadStream : public std::exception {};

/// Parses a stream, which may hold any bytes.
class StreamReader {
 public:
  explicit StreamReader(std::span<const std::byte> stream) : stream_(stream) {}

  Object TakeObject(size_t depth) {
    if (depth > kMaxDepth) throw BadStream();
    Object object;
    object.is_group = Take<uint8_t>() != 0;
    if (!object.is_group) object.values = TakeValues();
    for (auto left = Take<uint32_t>(); left > 0; --left) {
      std::string name(TakeText());
      object.attributes.insert_or_assign(std::move(name), TakeValues());
    }
    for (auto left = Take<uint32_t>(); left > 0; --left) {
      std::string name(TakeText());
      object.members.insert_or_assign(std::move(name), TakeObject(depth + 1));
    }
    return object;
  }

  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, TakeBytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view TakeText() {
    const auto bytes = TakeBytes(Take<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool AtEnd() const { return place_ == stream_.size(); }
  size_t texts() const { return texts_; }  ///< that are values

 private:
  std::span<const std::byte> TakeBytes(uint64_t count) {
    if (count > stream_.size() - place_) throw BadStream();
    place_ += count;
    return stream_.subspan(place_ - count, count);
  }

  Values TakeValues() {
    Values values;
    const auto type = Take<uint8_t>();
    if (type > static_cast<uint8_t>(ValueType::kOther)) throw BadStream();
    values.type = static_cast<ValueType>(type);
    values.type_name = Printable(TakeText());
    const auto axes = Take<uint8_t>();
    if (axes > kMaxAxes) throw BadStream();
    for (size_t i = 0; i < axes; ++i) values.extent.push_back(Take<uint64_t>());
    values.is_read = Take<uint8_t>() != 0;
    const auto length = Take<uint64_t>();
    const size_t misplaced = place_ % kStreamAlignment;
    if (misplaced > 0) TakeBytes(kStreamAlignment - misplaced);
    values.bytes = TakeBytes(length);
    if (values.is_read) CheckBytes(values);
    return values;
  }

  /// Throws unless there are as many values as the extent says.
  void CheckBytes(const Values& values) {
    const auto& extent = values.extent;
    const bool is_empty =
        std::find(extent.begin(), extent.end(), 0U) != extent.end();
    uint64_t count = is_empty ? 0 : 1;
    for (const uint64_t size : extent) {
      // Each value has at least a byte, so that this can't overflow.
      if (!is_empty && count > values.bytes.size() / size) throw BadStream();
      count *= size;
    }
    if (values.type == ValueType::kString) {
      StreamReader texts(values.bytes);
      for (uint64_t i = 0; i < count; ++i) texts.TakeText();
      texts_ += count;
      if (!texts.AtEnd()) throw BadStream();
    } else if (values.type == ValueType::kOther ||
               values.bytes.size() != count * SizeOf(values.type)) {
      throw BadStream();
    }
  }

  std::span<const std::byte> stream_;
  size_t place_ = 0;
  size_t texts_ = 0;
};

[[noreturn]] void Reject(const std::string& name, std::string_view what) {
  ThrowError(ErrorKind::kFormat,
             "{}: {} (docs/run-log.md). The file is truncated or "
             "damaged, or was changed by another program; make it again.",
             name, what);
}

std::optional<Object> Parsed(std::span<const std::byte> stream, size_t& texts) {
  try {
    StreamReader reader(stream);
    Object root = reader.TakeObject(0);
    texts = reader.texts();
    if (reader.AtEnd()) return root;
  } catch (const BadStream&) {
  }
  return std::nullopt;
}

}  // namespace

std::string_view Describe(ValueType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

size_t SizeOf(ValueType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

uint64_t Values::Count() const {
  uint64_t count = 1;
  for (const uint64_t size : extent) count *= size;
  return count;
}

const Values* Object::Attribute(std::string_view name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : &found->second;
}

const Object* Object::Member(std::string_view name) const {
  const auto found = members.find(name);
  return found == members.end() ? nullptr : &found->second;
}

template <typename T>
std::vector<T> Copied(const Values& values) {
  ISOLOSS_ASSERT(values.is_read && values.type == ValueTypeOf<T>());
  std::vector<T> copy(values.Count());
  if constexpr (std::is_same_v<T, std::string>) {
    StreamReader texts(values.bytes);
    for (std::string& text : copy) text = Printable(texts.TakeText());
  } else if (!copy.empty()) {
    std::memcpy(copy.data(), values.bytes.data(), values.bytes.size());
  }
  return copy;
}

template <typename T>
T One(const Values& values) {
  ISOLOSS_ASSERT(values.is_read && values.type == ValueTypeOf<T>() &&
                 values.IsScalar());
  if constexpr (std::is_same_v<T, std::string>) {
    return Printable(StreamReader(values.bytes).TakeText());
  } else if constexpr (std::is_same_v<T, bool>) {
    // Bytes other than 0 and 1 are not values of a C++ bool.
    return values.bytes.front() != std::byte{0};
  } else {
    T value;
    std::memcpy(&value, values.bytes.data(), sizeof(value));
    return value;
  }
}

std::string RawText(const Values& values) {
  ISOLOSS_ASSERT(values.is_read && values.type == ValueType::kString &&
                 values.IsScalar());
  return std::string(StreamReader(values.bytes).TakeText());
}

Tree::Tree(std::span<const std::byte> file, const std::string& name,
           Part part) {
  const Budget budget(file.size());
  memory_ = std::make_unique<SharedMemory>(budget.stream);
  const std::span<std::byte> memory = memory_->bytes();
  std::string end;
  {
    // No other thread is in the library when the process is made.
    const Session session;
    end = RunIsolated({budget.memory, budget.seconds},
                      [&] { WalkFile(file, budget, part, memory); });
  }
  StreamHead head;
  std::memcpy(&head, memory.data(), sizeof(head));
  if (!end.empty() || head.length > memory.size() - sizeof(head)) {
    Reject(name, fmt::format("HDF5, in a process of its own, {}",
                             end.empty() ? "did not end" : end));
  }
  const auto content = memory.subspan(sizeof(head), head.length);
  if (head.state == StreamHead::kRefused) {
    Reject(name, Printable({reinterpret_cast<const char*>(content.data()),
                            content.size()}));
  }
  std::optional<Object> root;
  size_t texts = 0;
  if (head.state == StreamHead::kDone) root = Parsed(content, texts);
  if (!root) Reject(name, "HDF5 went astray on it");
  root_ = *std::move(root);
  value_bytes_ = content.size() + texts * kTextBytes;
}

Tree::~Tree() = default;

template std::vector<uint8_t> Copied(const Values&);
template std::vector<float> Copied(const Values&);
template std::vector<int32_t> Copied(const Values&);
template std::vector<int64_t> Copied(const Values&);
template std::vector<double> Copied(const Values&);
template std::vector<std::string> Copied(const Values&);
template int64_t One(const Values&);
template double One(const Values&);
template bool One(const Values&);
template std::string One(const Values&);

}  // namespace isoloss::hdf5
