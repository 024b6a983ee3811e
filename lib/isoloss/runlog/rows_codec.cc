// Encodes rows and provenance as bytes. Nothing is written twice: the number of
// values in a dataset follows from its group's rows and its axes, so that no
// count can contradict the values.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

static_assert(std::endian::native == std::endian::little);

/// A journal may name at most this many ranks, far more than any run has.
constexpr int64_t kMaxCount = int64_t{1} << 20;

/// Says in which form a dataset follows: the byte before its axes.
enum Form : uint8_t { kEmpty = 0, kDense = 1, kSparse = 2 };

/// A sparse dataset names each of these places even if its value is 0, so that
/// a short record can't ask for much memory.
constexpr uint64_t kNamedEvery = 4096;

bool IsNamed(uint64_t index, int32_t value) {
  return value != 0 || index % kNamedEvery == kNamedEvery - 1;
}

constexpr uint64_t kEntryBytes = sizeof(uint64_t) + sizeof(int32_t);

/// True if `entries` named values and their number are shorter than all values.
bool SparseIsSmaller(uint64_t entries, uint64_t values) {
  return sizeof(uint64_t) + entries * kEntryBytes < values * sizeof(int32_t);
}

class Encoder {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    PutBytes(&value, sizeof(T));
  }
  void Put(bool flag) { Put(static_cast<uint8_t>(flag ? 1 : 0)); }
  void Put(const std::string& text) {
    Put(uint64_t{text.size()});
    PutBytes(text.data(), text.size());
  }
  template <typename T>
  void PutAll(const std::vector<T>& values) {
    if constexpr (std::is_same_v<T, std::string>) {
      for (const std::string& value : values) Put(value);
    } else {
      PutBytes(values.data(), values.size() * sizeof(T));
    }
  }
  void PutSparse(const std::vector<int32_t>& values, uint64_t entries) {
    bytes.reserve(bytes.size() + sizeof(entries) + entries * kEntryBytes);
    Put(entries);
    for (uint64_t i = 0; i < values.size(); ++i) {
      if (!IsNamed(i, values[i])) continue;
      Put(i);
      Put(values[i]);
    }
  }

  std::vector<std::byte> bytes;

 private:
  void PutBytes(const void* from, size_t count) {
    if (count == 0) return;
    const size_t end = bytes.size();
    bytes.resize(end + count);
    std::memcpy(bytes.data() + end, from, count);
  }
};

/// Takes values from the front of bytes, which may be anything.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes)
      : rest_(bytes), size_(bytes.size()) {}

  template <typename T>
  T Take(std::string_view what) {
    T value{};
    std::memcpy(&value, Bytes(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  /// Takes an attribute.
  template <typename T>
  void Take(const Column& column, T& value) {
    const std::string& name = column.field.name;
    if constexpr (std::is_same_v<T, std::string>) {
      value = ShownText(column.field, TakeText(name));
    } else if constexpr (std::is_same_v<T, bool>) {
      const auto flag = Take<uint8_t>(name);
      if (flag > 1) Reject(name, fmt::format("{}, but a flag is 0 or 1", flag));
      value = flag == 1;
    } else {
      value = Take<T>(name);
    }
  }
  std::string TakeText(std::string_view what) {
    const auto bytes = Bytes(Take<uint64_t>(what), what);
    if (bytes.size() > texts_left_) {
      Reject(what, fmt::format("all texts have more than {} bytes, but a "
                               "record has fewer",
                               hdf5::kMaxTextBytes));
    }
    texts_left_ -= bytes.size();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Nothing is allocated before the bytes are known to be there.
  template <typename T>
  void TakeAll(uint64_t count, std::string_view what, std::vector<T>& values) {
    if (count > uint64_t{kMaxValues}) {
      Reject(what, fmt::format("{} values, but at most {} are read", count,
                               kMaxValues));
    }
    if constexpr (std::is_same_v<T, std::string>) {
      CheckRest(count * sizeof(uint64_t), what);
      Spend(count * hdf5::kTextBytes, what);
      values.resize(count);
      for (std::string& value : values) value = Printable(TakeText(what));
    } else {
      const auto bytes = Bytes(count * sizeof(T), what);
      Spend(bytes.size(), what);
      values.resize(count);
      // An empty span has no address, which memcpy must not get.
      if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    }
  }
  /// Takes a sparse dataset, and only in the form that PutSparse writes.
  void TakeSparse(uint64_t count, std::string_view what,
                  std::vector<int32_t>& values) {
    const auto entries = Take<uint64_t>(what);
    if (entries > rest_.size() / kEntryBytes ||
        !SparseIsSmaller(entries, count) || entries < count / kNamedEvery) {
      Reject(what, fmt::format("{} entries of {} values in {} bytes", entries,
                               count, rest_.size()));
    }
    Spend(count * sizeof(int32_t), what);
    values.assign(count, 0);
    uint64_t next = 0;  // the lowest place that has not been passed
    uint64_t named = kNamedEvery - 1;
    for (uint64_t i = 0; i < entries; ++i) {
      const auto index = Take<uint64_t>(what);
      const auto value = Take<int32_t>(what);
      if (index < next || index >= count || index > named ||
          !IsNamed(index, value)) {
        Reject(what, fmt::format("entry {} is {} at {} of {}", i, value, index,
                                 count));
      }
      values[index] = value;
      next = index + 1;
      named = next / kNamedEvery * kNamedEvery + kNamedEvery - 1;
    }
    if (named < count) Reject(what, fmt::format("place {} is missing", named));
  }
  /// Counts the memory of values that are about to be taken.
  void Spend(uint64_t bytes, std::string_view what) {
    if (bytes > memory_left_) {
      Reject(what, fmt::format("the record holds more than {} MiB of values, "
                               "but a log may hold so many, or as "
                               "ISOLOSS_MEMORY_MIB says",
                               hdf5::ReadLimit() >> 20));
    }
    memory_left_ -= bytes;
  }
  void ExpectEnd() const {
    if (!rest_.empty()) {
      Reject("the end", fmt::format("followed by {} bytes", rest_.size()));
    }
  }

  [[noreturn]] void Reject(std::string_view what,
                           std::string_view problem) const {
    ThrowError(ErrorKind::kFormat,
               "{} at byte {} of {}: {}. The record is not what isoloss "
               "writes; start the run again with --restart.",
               what, size_ - rest_.size(), size_, problem);
  }

 private:
  void CheckRest(uint64_t count, std::string_view what) const {
    if (count > rest_.size()) {
      Reject(what, fmt::format("needs {} bytes, but {} are left", count,
                               rest_.size()));
    }
  }
  std::span<const std::byte> Bytes(uint64_t count, std::string_view what) {
    CheckRest(count, what);
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }

  std::span<const std::byte> rest_;
  size_t size_;
  uint64_t memory_left_ = hdf5::ReadLimit();
  uint64_t texts_left_ = hdf5::kMaxTextBytes;
};

Form FormOf(const std::vector<int32_t>& values, uint64_t& entries) {
  entries = 0;
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (IsNamed(i, values[i])) ++entries;
  }
  return SparseIsSmaller(entries, values.size()) ? kSparse : kDense;
}
template <typename T>
Form FormOf(const std::vector<T>&, uint64_t&) {
  return kDense;
}

void EncodeColumn(const Group& group, const Column& column, const View& rows,
                  Encoder& out) {
  rows.WithValues(column, [&]<typename T>(const std::vector<T>& values) {
    Form form = kDense;
    uint64_t entries = 0;
    if (column.role == Role::kIndex) {
      out.Put(uint64_t{values.size()});
    } else {
      form = values.empty() ? kEmpty : FormOf(values, entries);
      out.Put(form);
      if (form == kEmpty) return;
      for (const Axis& axis : column.axes) out.Put(int64_t{rows.Size(axis)});
    }
    const uint64_t count = rows.Rows(group, column) * rows.Width(column);
    if (values.size() != count) {
      ThrowError(ErrorKind::kShape,
                 "run log: {} has {} values, but its rows need {}. "
                 "Append to all columns at each step.",
                 group.PathOf(column), values.size(), count);
    }
    if constexpr (std::is_same_v<T, int32_t>) {
      if (form == kSparse) return out.PutSparse(values, entries);
    }
    out.PutAll(values);
  });
}

/// Reads the axes of one dataset, which must agree with those before it.
/// Returns the product, within kMaxValues.
uint64_t DecodeAxes(const Column& column, const std::string& name,
                    MutableView rows, uint64_t count, Decoder& in) {
  for (const Axis& axis : column.axes) {
    int64_t& known = rows.Size(axis);
    const auto size = in.Take<int64_t>(name);
    if (size < 1 || size > kMaxValues || (known != 0 && known != size)) {
      in.Reject(name,
                fmt::format("{} {}, but must be {}", size, axis.name,
                            known == 0 ? "at least 1" : fmt::to_string(known)));
    }
    known = size;
    count *= static_cast<uint64_t>(size);
    if (count > uint64_t{kMaxValues}) {
      in.Reject(name, fmt::format("more than {} values", kMaxValues));
    }
  }
  return count;
}

void DecodeColumn(const Group& group, const Column& column, MutableView rows,
                  Decoder& in) {
  const std::string name = group.PathOf(column);
  uint64_t count = 0;
  uint8_t form = kDense;
  if (column.role == Role::kIndex) {
    count = in.Take<uint64_t>(name);
  } else {
    form = in.Take<uint8_t>(name);
    if (form == kEmpty) return;
    count = DecodeAxes(column, name, rows, rows.Rows(group, column), in);
    if (count == 0) in.Reject(name, "no values, but says that it has some");
  }
  if (form == kSparse && column.type == ValueType::kInt32) {
    return in.TakeSparse(count, name, rows.Values<int32_t>(column));
  }
  if (form != kDense) {
    in.Reject(name,
              fmt::format("form {}, but must be 0, 1, or of int32 2", form));
  }
  rows.WithValues(column,
                  [&](auto& values) { in.TakeAll(count, name, values); });
}

void DecodePlaces(const Group& group, const Column& column, MutableView rows,
                  Decoder& in) {
  int64_t& known = rows.At<int64_t>(column.offset);
  const auto count = in.Take<int64_t>(group.name);
  if (count < 0 || count > kMaxCount || (known != 0 && known != count)) {
    in.Reject(group.name,
              fmt::format("{} rows, but its axis has {}", count, known));
  }
  known = count;
}

/// Events are stored one after the other, each whole.
void EncodeEvents(const std::vector<Event>& events, Encoder& out) {
  out.Put(uint64_t{events.size()});
  for (const Event& event : events) {
    out.Put(event.unix_seconds);
    out.Put(event.kind);
    out.Put(event.text);
  }
}

void DecodeEvents(const std::string& group, std::vector<Event>& events,
                  Decoder& in) {
  const auto count = in.Take<uint64_t>(group);
  for (uint64_t i = 0; i < count; ++i) {
    in.Spend(sizeof(double) + 2 * hdf5::kTextBytes, group);
    Event event;
    event.unix_seconds = in.Take<double>(group);
    event.kind = Printable(in.TakeText(group));
    event.text = Printable(in.TakeText(group));
    events.push_back(std::move(event));
  }
}

}  // namespace

std::vector<std::byte> EncodeRows(const RunLog& rows) {
  Encoder out;
  const View view(rows);
  for (const Group& group : RowGroups()) {
    if (group.HasEvents()) {
      EncodeEvents(rows.events, out);
      continue;
    }
    for (const Column& column : group.columns) {
      if (column.role == Role::kPlaces) {
        out.Put(int64_t{view.At<int64_t>(column.offset)});
      } else {
        EncodeColumn(group, column, view, out);
      }
    }
  }
  return std::move(out.bytes);
}

RunLog DecodeRows(std::span<const std::byte> bytes) {
  RunLog rows;
  Decoder in(bytes);
  const MutableView view(rows);
  for (const Group& group : RowGroups()) {
    if (group.HasEvents()) {
      DecodeEvents(group.name, rows.events, in);
      continue;
    }
    for (const Column& column : group.columns) {
      if (column.role == Role::kPlaces) {
        DecodePlaces(group, column, view, in);
      } else {
        DecodeColumn(group, column, view, in);
      }
    }
  }
  in.ExpectEnd();
  return rows;
}

std::vector<std::byte> EncodeProvenance(const Provenance& provenance) {
  Encoder out;
  const View view(provenance);
  for (const Group& group : SchemaOf<Provenance>()) {
    for (const Column& column : group.columns) {
      if (group.IsFile()) {
        view.WithValue(column, [&](const auto& value) { out.Put(value); });
        continue;
      }
      view.WithValues(column, [&](const auto& values) {
        out.Put(uint64_t{values.size()});
        out.PutAll(values);
      });
    }
  }
  return std::move(out.bytes);
}

Provenance DecodeProvenance(std::span<const std::byte> bytes) {
  Provenance provenance;
  Decoder in(bytes);
  const MutableView view(provenance);
  for (const Group& group : SchemaOf<Provenance>()) {
    for (const Column& column : group.columns) {
      if (group.IsFile()) {
        view.WithValue(column, [&](auto& value) { in.Take(column, value); });
        continue;
      }
      view.WithValues(column, [&](auto& values) {
        const std::string& name = column.field.name;
        in.TakeAll(in.Take<uint64_t>(name), name, values);
      });
    }
  }
  in.ExpectEnd();
  return provenance;
}

}  // namespace isoloss::runlog
