// Holds the content of an HDF5 file without HDF5: a plain tree of groups,
// datasets and attributes. HDF5 itself sees the bytes of a file only in a
// process of its own (docs/run-log.md, "Hostile files"), which passes on the
// tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace isoloss::hdf5 {

class SharedMemory;

/// Our files have these types; see TypeOf in handle.h.
enum class ValueType : uint8_t {
  kUint8,
  kFloat,
  kInt32,
  kInt64,
  kDouble,
  kBool,
  kString,
  kOther,
};

template <typename T>
constexpr ValueType ValueTypeOf() {
  if constexpr (std::is_same_v<T, uint8_t>) return ValueType::kUint8;
  if constexpr (std::is_same_v<T, float>) return ValueType::kFloat;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return ValueType::kInt64;
  if constexpr (std::is_same_v<T, double>) return ValueType::kDouble;
  if constexpr (std::is_same_v<T, bool>) return ValueType::kBool;
  if constexpr (std::is_same_v<T, std::string>) return ValueType::kString;
  return ValueType::kOther;
}

/// Returns "64-bit float", ... for messages.
std::string_view Describe(ValueType type);
/// Returns the bytes of one value in the tree; 0 if it is a string, which has
/// no fixed size.
size_t SizeOf(ValueType type);

/// Holds the values of a dataset or an attribute.
struct Values {
  ValueType type = ValueType::kOther;
  std::string type_name;         ///< for messages
  std::vector<uint64_t> extent;  ///< empty of a scalar
  bool is_read = false;  ///< false of other types and of long attributes
  std::span<const std::byte> bytes;

  bool IsScalar() const { return extent.empty(); }
  uint64_t Count() const;
};

struct Object {
  bool is_group = true;
  Values values;  ///< of a dataset
  std::map<std::string, Values, std::less<>> attributes;
  std::map<std::string, Object, std::less<>> members;  ///< of a group

  /// Returns null if there is no attribute of that name.
  const Values* Attribute(std::string_view name) const;
  const Object* Member(std::string_view name) const;
};

/// Copies values, which must have T's type. A bool is true unless its byte is
/// 0; texts are Printable.
template <typename T>
std::vector<T> Copied(const Values& values);
template <typename T>
T One(const Values& values);
/// Returns the text of an attribute as the file has it.
std::string RawText(const Values& values);

/// Says how much of a file is wanted.
enum class Part : uint8_t {
  kAll,
  kAttributes,  ///< of the root only
};

/// Owns the memory of its objects.
class Tree {
 public:
  /// Lets HDF5 read the bytes of a file in a process of its own. `name` is for
  /// messages.
  /// Errors   FormatError if the file breaks a rule of "Hostile files" in
  ///          docs/run-log.md; if HDF5 can't read it, crashes on it, or takes
  ///          more than its share of time or memory; IoError if the system has
  ///          no process or memory for it.
  Tree(std::span<const std::byte> file, const std::string& name,
       Part part = Part::kAll);
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  const Object& root() const { return root_; }
  /// Returns the bytes that a copy of all its values takes; see read_limit.h.
  size_t value_bytes() const { return value_bytes_; }

 private:
  std::unique_ptr<SharedMemory> memory_;
  Object root_;
  size_t value_bytes_ = 0;
};

}  // namespace isoloss::hdf5
