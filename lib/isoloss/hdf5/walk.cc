#include "isoloss/hdf5/walk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/hdf5/check.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/hdf5/read_limit.h"
#include "isoloss/hdf5/stream.h"

namespace isoloss::hdf5 {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
/// Deflate makes at best 2 bits of 258 bytes.
constexpr uint64_t kMaxDeflateRatio = 1032;
/// A small dataset has no larger chunk; we write 64 KiB, h5py up to 1 MiB.
constexpr uint64_t kSmallChunk = 4 * kMebibyte;
/// Limits the number of objects and attributes. The largest tensor dump has
/// some thousands.
constexpr size_t kMaxObjects = size_t{1} << 17;
/// An object has at most this many attributes, since HDF5's time grows with the
/// square of their number. A null ensemble has 72.
constexpr size_t kMaxAttributes = 256;

/// The file breaks a rule. The text completes "FILE: ".
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal(fmt::format(format, std::forward<Args>(args)...));
}

/// All variable-length strings together may take `left` more bytes.
struct TextBudget {
  size_t left;
  bool exceeded = false;
  std::vector<std::vector<char>> blocks;
};

void* AllocateText(size_t bytes, void* budget) {
  auto& texts = *static_cast<TextBudget*>(budget);
  // Each string has a NUL, which is not in the file.
  if (bytes > texts.left + 1) {
    texts.exceeded = true;
    return nullptr;
  }
  texts.left -= bytes - std::min<size_t>(bytes, 1);
  return texts.blocks.emplace_back(bytes).data();
}

void FreeText(void* /*text*/, void* /*budget*/) {}

std::vector<std::string> MemberNames(hid_t group, const std::string& path) {
  struct Found {
    std::vector<std::string> names;
    std::string refused;
  } found;
  const auto visit = [](hid_t /*group*/, const char* name,
                        const H5L_info_t* info, void* out) -> herr_t {
    auto& all = *static_cast<Found*>(out);
    if (info->type == H5L_TYPE_HARD) {
      all.names.emplace_back(name);
      return all.names.size() < kMaxObjects ? 0 : 1;
    }
    all.refused = name;
    return 1;
  };
  hsize_t place = 0;
  Check(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &place, visit, &found),
        "H5Literate", path);
  if (!found.refused.empty()) {
    Refuse(
        "{}/{} is a soft, external or user-defined link, but a file of "
        "isoloss has hard links only",
        path, found.refused);
  }
  return std::move(found.names);
}

class Walker {
 public:
  Walker(const Budget& budget, size_t file_bytes, std::span<std::byte> memory)
      : budget_(budget),
        file_bytes_(file_bytes),
        texts_{budget.texts, false, {}},
        out_(memory) {}

  void WalkAll(const Handle& file, Part part) {
    if (part == Part::kAll) {
      const Handle root(Check(H5Oopen(file.get(), "/", H5P_DEFAULT), "H5Oopen"),
                        &H5Oclose);
      WalkObject(root, "", 0);
      return;
    }
    out_.Put(uint8_t{1});
    PutAttributes(file, "");
    out_.Put(uint32_t{0});
  }

  size_t used() const { return out_.used(); }

 private:
  void CountObject(const std::string& path) {
    if (++objects_ <= kMaxObjects) return;
    Refuse(
        "{} is one of more than {} objects and attributes, but a file of "
        "isoloss has fewer",
        path, kMaxObjects);
  }

  /// Refuses an object to which two links lead, and so any cycle.
  void CheckNew(const Handle& object, const std::string& path) {
    H5O_info_t info = {};
    Check(H5Oget_info2(object.get(), &info, H5O_INFO_BASIC), "H5Oget_info2",
          path);
    if (!addresses_.insert(info.addr).second) {
      Refuse(
          "{} is an object that another link leads to, but a file of "
          "isoloss has one link to each object",
          path);
    }
  }

  void WalkObject(const Handle& object, const std::string& path, size_t depth) {
    CountObject(path);
    CheckNew(object, path);
    const H5I_type_t kind = H5Iget_type(object.get());
    if (kind != H5I_GROUP && kind != H5I_DATASET) {
      Refuse(
          "{} is a stored type, but a file of isoloss has groups and "
          "datasets only",
          path);
    }
    out_.Put(static_cast<uint8_t>(kind == H5I_GROUP ? 1 : 0));
    if (kind == H5I_DATASET) PutDataset(object, path);
    PutAttributes(object, path);
    if (kind == H5I_GROUP) {
      WalkMembers(object, path, depth);
    } else {
      out_.Put(uint32_t{0});
    }
  }

  void WalkMembers(const Handle& group, const std::string& path, size_t depth) {
    const std::vector<std::string> names = MemberNames(group.get(), path);
    if (depth == kMaxDepth && !names.empty()) {
      Refuse(
          "{} has members, but in a file of isoloss groups are at most {} "
          "deep",
          path, kMaxDepth);
    }
    out_.Put(static_cast<uint32_t>(names.size()));
    for (const std::string& name : names) {
      const std::string member_path = fmt::format("{}/{}", path, name);
      // HDF5 would take such a name for a path, whose links nobody has looked
      // at.
      if (name.empty() || name == "." || name.find('/') != std::string::npos) {
        Refuse("{} is no name of a member", member_path);
      }
      const Handle member(Check(H5Oopen(group.get(), name.c_str(), H5P_DEFAULT),
                                "H5Oopen", member_path),
                          &H5Oclose);
      out_.PutText(name);
      WalkObject(member, member_path, depth + 1);
    }
  }

  void PutAttributes(const Handle& object, const std::string& path) {
    H5O_info_t info = {};
    Check(H5Oget_info2(object.get(), &info, H5O_INFO_NUM_ATTRS), "H5Oget_info2",
          path);
    if (info.num_attrs > kMaxAttributes) {
      Refuse("{} has {} attributes, but an object of isoloss has at most {}",
             path.empty() ? "/" : path, info.num_attrs, kMaxAttributes);
    }
    std::vector<std::string> names;
    const auto visit = [](hid_t /*object*/, const char* name,
                          const H5A_info_t* /*info*/, void* out) -> herr_t {
      static_cast<std::vector<std::string>*>(out)->emplace_back(name);
      return 0;
    };
    hsize_t place = 0;
    Check(H5Aiterate2(object.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &place,
                      visit, &names),
          "H5Aiterate2", path);
    out_.Put(static_cast<uint32_t>(names.size()));
    for (const std::string& name : names) {
      const std::string shown = fmt::format("attribute {}:{}", path, name);
      CountObject(shown);
      out_.PutText(name);
      PutAttribute(
          Handle(Check(H5Aopen(object.get(), name.c_str(), H5P_DEFAULT),
                       "H5Aopen", shown),
                 &H5Aclose),
          shown);
    }
  }

  void PutAttribute(const Handle& attribute, const std::string& path) {
    const Handle space(Check(H5Aget_space(attribute.get()), "H5Aget_space"),
                       &H5Sclose);
    const Handle type(Check(H5Aget_type(attribute.get()), "H5Aget_type"),
                      &H5Tclose);
    const std::vector<uint64_t> extent = ExtentOf(space, path);
    const ValueType value_type = PutType(type, extent, path);
    const bool is_read = extent.empty() && value_type != ValueType::kOther;
    if (!is_read) {
      PutLength(false, 0);
    } else if (value_type == ValueType::kString) {
      char* text = nullptr;
      Check(H5Aread(attribute.get(), type.get(), &text), "H5Aread", path);
      const size_t bytes = text == nullptr ? 0 : std::strlen(text);
      if (bytes > texts_.left) RefuseTexts(path);
      texts_.left -= bytes;
      PutTexts({&text, 1});
      H5free_memory(text);
    } else {
      std::array<std::byte, sizeof(double)> value = {};
      Check(H5Aread(attribute.get(), type.get(), value.data()), "H5Aread",
            path);
      PutLength(true, SizeOf(value_type));
      std::memcpy(out_.Take(SizeOf(value_type)), value.data(),
                  SizeOf(value_type));
    }
  }

  void PutDataset(const Handle& dataset, const std::string& path) {
    const Handle layout(
        Check(H5Dget_create_plist(dataset.get()), "H5Dget_create_plist", path),
        &H5Pclose);
    const bool is_deflated = CheckLayout(layout, path);
    const Handle space(Check(H5Dget_space(dataset.get()), "H5Dget_space", path),
                       &H5Sclose);
    const Handle type(Check(H5Dget_type(dataset.get()), "H5Dget_type", path),
                      &H5Tclose);
    const std::vector<uint64_t> extent = ExtentOf(space, path);
    const ValueType value_type = PutType(type, extent, path);
    if (value_type == ValueType::kOther) return PutLength(false, 0);
    const uint64_t count =
        CheckedCount(extent, H5Tget_size(type.get()), is_deflated, path);
    TakeFromBudget(
        count,
        value_type == ValueType::kString ? kTextBytes : H5Tget_size(type.get()),
        path);
    CheckChunks(layout, extent, count, H5Tget_size(type.get()), path);
    if (value_type == ValueType::kString) {
      ReadTexts(dataset, type, count, path);
    } else {
      const uint64_t bytes = count * SizeOf(value_type);
      PutLength(true, bytes);
      Check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                    out_.Take(bytes)),
            "H5Dread", path);
    }
  }

  /// Refuses values that lie in other files or come from filters that are not
  /// ours. Returns whether a filter compresses.
  static bool CheckLayout(const Handle& layout, const std::string& path) {
    const H5D_layout_t kind =
        Check(H5Pget_layout(layout.get()), "H5Pget_layout", path);
    if (kind != H5D_CONTIGUOUS && kind != H5D_CHUNKED && kind != H5D_COMPACT) {
      Refuse(
          "{} is a virtual dataset, but those of isoloss are in the file "
          "itself",
          path);
    }
    if (Check(H5Pget_external_count(layout.get()), "H5Pget_external_count",
              path) != 0) {
      Refuse(
          "the values of {} are in another file, but those of isoloss are "
          "in the file itself",
          path);
    }
    std::set<H5Z_filter_t> filters;
    const int count = Check(H5Pget_nfilters(layout.get()), "H5Pget_nfilters");
    for (int i = 0; i < count; ++i) {
      unsigned flags = 0;
      size_t no_values = 0;
      const H5Z_filter_t filter =
          Check(H5Pget_filter2(layout.get(), static_cast<unsigned>(i), &flags,
                               &no_values, nullptr, 0, nullptr, nullptr),
                "H5Pget_filter2", path);
      const bool is_ours = filter == H5Z_FILTER_DEFLATE ||
                           filter == H5Z_FILTER_SHUFFLE ||
                           filter == H5Z_FILTER_FLETCHER32;
      if (!is_ours || !filters.insert(filter).second) {
        Refuse(
            "{} goes through filter {}, but those of isoloss go through "
            "shuffle, deflate and fletcher32, each at most once",
            path, filter);
      }
    }
    return filters.count(H5Z_FILTER_DEFLATE) > 0;
  }

  /// HDF5 allocates a buffer for each whole chunk.
  static void CheckChunks(const Handle& layout,
                          const std::vector<uint64_t>& extent, uint64_t count,
                          uint64_t value_bytes, const std::string& path) {
    if (H5Pget_layout(layout.get()) != H5D_CHUNKED) return;
    std::array<hsize_t, H5S_MAX_RANK> chunk = {};
    const int axes =
        Check(H5Pget_chunk(layout.get(), static_cast<int>(chunk.size()),
                           chunk.data()),
              "H5Pget_chunk", path);
    const uint64_t limit = std::max(kSmallChunk, count * value_bytes);
    uint64_t bytes = value_bytes;
    for (size_t i = 0; i < static_cast<size_t>(axes); ++i) {
      if (chunk[i] == 0 || bytes > limit / chunk[i]) {
        Refuse(
            "{} has chunks of {} values along axis {} of an array [{}], but "
            "a chunk has at most {} bytes",
            path, chunk[i], i, fmt::join(extent, ", "), limit);
      }
      bytes *= chunk[i];
    }
  }

  /// Returns the number of values of `extent`; refuses it if the file can't
  /// hold them.
  uint64_t CheckedCount(const std::vector<uint64_t>& extent,
                        uint64_t value_bytes, bool is_deflated,
                        const std::string& path) {
    const uint64_t limit =
        uint64_t{file_bytes_} * (is_deflated ? kMaxDeflateRatio : 1);
    uint64_t count = 1;
    for (const uint64_t size : extent) {
      if (size != 0 && count > limit / value_bytes / size) {
        Refuse(
            "the extent of {} is [{}] with {} bytes a value, but a file of {} "
            "bytes can hold at most {} bytes here",
            path, fmt::join(extent, ", "), value_bytes, file_bytes_, limit);
      }
      count *= size;
    }
    return count;
  }

  void TakeFromBudget(uint64_t count, uint64_t value_bytes,
                      const std::string& path) {
    if (count > values_left_ / value_bytes) {
      Refuse(
          "with {} its values take more than {} MiB, but those of a file may "
          "take so many. If you trust it, set ISOLOSS_MEMORY_MIB to more",
          path, budget_.values / kMebibyte);
    }
    values_left_ -= count * value_bytes;
  }

  static std::vector<uint64_t> ExtentOf(const Handle& space,
                                        const std::string& path) {
    if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
      Refuse("{} has no place for a value, but those of isoloss have", path);
    }
    std::array<hsize_t, H5S_MAX_RANK> extent = {};
    const int axes =
        Check(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr),
              "H5Sget_simple_extent_dims", path);
    if (axes > static_cast<int>(kMaxAxes)) {
      Refuse("{} has {} axes, but those of isoloss have at most {}", path, axes,
             kMaxAxes);
    }
    return {extent.begin(), extent.begin() + axes};
  }

  ValueType PutType(const Handle& type, const std::vector<uint64_t>& extent,
                    const std::string& path) {
    if (Check(H5Tdetect_class(type.get(), H5T_REFERENCE), "H5Tdetect_class",
              path) > 0) {
      Refuse("{} holds references, but a file of isoloss has none", path);
    }
    ValueType found = ValueType::kOther;
    for (const auto& [known, value_type] : known_types_) {
      if (SameType(type, known)) found = value_type;
    }
    out_.Put(static_cast<uint8_t>(found));
    out_.PutText(Describe(type));
    out_.Put(static_cast<uint8_t>(extent.size()));
    for (const uint64_t size : extent) out_.Put(size);
    return found;
  }

  void PutLength(bool is_read, uint64_t bytes) {
    out_.Put(static_cast<uint8_t>(is_read ? 1 : 0));
    out_.Put(bytes);
    out_.Align();
  }

  [[noreturn]] void RefuseTexts(const std::string& path) const {
    Refuse(
        "with {} the strings of the file have more than {} bytes in all, but "
        "those of a file of {} bytes have at most so many",
        path, budget_.texts, file_bytes_);
  }

  void ReadTexts(const Handle& dataset, const Handle& type, uint64_t count,
                 const std::string& path) {
    std::vector<char*> texts(count);
    const Handle transfer(Check(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate"),
                          &H5Pclose);
    Check(H5Pset_vlen_mem_manager(transfer.get(), &AllocateText, &texts_,
                                  &FreeText, &texts_),
          "H5Pset_vlen_mem_manager");
    const herr_t result = H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL,
                                  transfer.get(), texts.data());
    if (texts_.exceeded) RefuseTexts(path);
    Check(result, "H5Dread", path);
    PutTexts(texts);
    texts_.blocks.clear();
  }

  void PutTexts(std::span<char* const> texts) {
    uint64_t bytes = 0;
    for (const char* text : texts) {
      bytes += sizeof(uint32_t) + (text == nullptr ? 0 : std::strlen(text));
    }
    PutLength(true, bytes);
    for (const char* text : texts) out_.PutText(text == nullptr ? "" : text);
  }

  const Budget& budget_;
  size_t file_bytes_;
  uint64_t values_left_ = budget_.values;
  TextBudget texts_;
  StreamWriter out_;
  size_t objects_ = 0;
  std::set<haddr_t> addresses_;
  std::array<std::pair<Handle, ValueType>, 7> known_types_ = {{
      {TypeOf<uint8_t>(), ValueType::kUint8},
      {TypeOf<float>(), ValueType::kFloat},
      {TypeOf<int32_t>(), ValueType::kInt32},
      {TypeOf<int64_t>(), ValueType::kInt64},
      {TypeOf<double>(), ValueType::kDouble},
      {TypeOf<bool>(), ValueType::kBool},
      {TypeOf<std::string>(), ValueType::kString},
  }};
};

void Leave(StreamHead::State state, size_t length,
           std::span<std::byte> memory) {
  const StreamHead head = {state, length};
  std::memcpy(memory.data(), &head, sizeof(head));
}

void LeaveReason(std::string_view reason, std::span<std::byte> memory) {
  reason = reason.substr(0, 4096);
  std::memcpy(memory.data() + sizeof(StreamHead), reason.data(), reason.size());
  Leave(StreamHead::kRefused, reason.size(), memory);
}

}  // namespace

Budget::Budget(size_t file_bytes)
    : texts(std::min(file_bytes, kMaxTextBytes)),
      values(ReadLimit()),
      // Names, types and extents take up to 16 times their bytes in a file.
      stream(values + texts + 16 * file_bytes + 16 * kMebibyte),
      // HDF5 holds strings, a chunk in several states, and its own tables.
      memory(file_bytes + texts + values / 2 + 128 * kMebibyte),
      seconds(4 + static_cast<int>(file_bytes / (32 * kMebibyte))) {}

void WalkFile(std::span<const std::byte> file, const Budget& budget, Part part,
              std::span<std::byte> memory) noexcept {
  try {
    H5PLset_loading_state(0);  // a filter's name is no reason to load a library
    Walker walker(budget, file.size(), memory.subspan(sizeof(StreamHead)));
    walker.WalkAll(OpenImage(file), part);
    Leave(StreamHead::kDone, walker.used(), memory);
  } catch (const Failure& failure) {
    LeaveReason(fmt::format("HDF5 can't read it: {}", failure.what()), memory);
  } catch (const std::bad_alloc&) {
    LeaveReason(fmt::format("reading it takes more than {} MiB of memory",
                            budget.memory / kMebibyte),
                memory);
  } catch (const std::exception& error) {
    LeaveReason(error.what(), memory);
  }
}

}  // namespace isoloss::hdf5
