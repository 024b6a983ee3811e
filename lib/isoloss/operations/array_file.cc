#include "isoloss/operations/array_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/formats/format.h"

namespace isoloss::operations {
namespace {

using Json = nlohmann::json;

[[noreturn]] void RejectArrays(const std::string& where,
                               const std::string& found,
                               const std::string& rule) {
  ThrowError(ErrorKind::kFormat, "{}: {}, but {}. Write the file again.", where,
             found, rule);
}

struct StoredType {
  std::string_view name;
  std::string_view npy;  ///< "": NumPy does not have the type
  size_t bytes;
  std::string_view dtype;  ///< a trainer's name of the type
};
constexpr StoredType kTypes[] = {
    {"F32", "<f4", 4, "float32"}, {"BF16", "", 2, "bfloat16"},
    {"F16", "<f2", 2, "float16"}, {"F8_E4M3", "", 1, "e4m3"},
    {"F8_E5M2", "", 1, "e5m2"},   {"I64", "<i8", 8, ""},
    {"I32", "<i4", 4, ""},        {"U8", "|u1", 1, ""}};

const StoredType* TypeNamed(std::string_view name,
                            std::string_view StoredType::*of) {
  if (name.empty()) return nullptr;
  const auto* found = std::ranges::find(kTypes, name, of);
  return found == std::end(kTypes) ? nullptr : found;
}

/// Returns the bytes of a tensor; a number above `most` if it has more.
size_t BytesOf(const std::vector<size_t>& extent, size_t of_one, size_t most) {
  if (std::ranges::count(extent, 0U) > 0) return 0;
  size_t bytes = of_one;
  for (const size_t size : extent) {
    if (size > most / bytes) return most + 1;
    bytes *= size;
  }
  return bytes;
}

uint64_t LittleEndian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  }
  return value;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns the axes of `shape`, each below 2^40.
std::vector<size_t> ExtentOf(const Json& shape, const std::string& where) {
  constexpr size_t kMaxAxes = 8;
  if (!shape.is_array() || shape.size() > kMaxAxes) {
    RejectArrays(where, "its shape is no list",
                 "it is one of at most 8 whole numbers");
  }
  std::vector<size_t> extent;
  for (const Json& size : shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() >> 40 != 0) {
      RejectArrays(where, "its shape has an axis that is none",
                   "axes are from 0 to 2^40");
    }
    extent.push_back(size.get<uint64_t>());
  }
  return extent;
}

StoredArray EntryOf(const Json& entry, std::span<const std::byte> data,
                    const std::string& where) {
  const auto has = [&](const char* key) {
    return entry.is_object() && entry.contains(key);
  };
  if (!has("dtype") || !has("shape") || !has("data_offsets") ||
      !entry["dtype"].is_string()) {
    RejectArrays(where, "its entry is incomplete",
                 "it has dtype, shape and data_offsets");
  }
  StoredArray array;
  array.type = entry["dtype"].get<std::string>();
  array.extent = ExtentOf(entry["shape"], where);
  const Json& offsets = entry["data_offsets"];
  const StoredType* type = TypeNamed(array.type, &StoredType::name);
  if (type == nullptr) return array;  // refused when the tensor is used
  if (!offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    RejectArrays(where, "its data_offsets are none",
                 "they are two whole numbers");
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    RejectArrays(where, fmt::format("it lies from {} to {}", begin, end),
                 fmt::format("the file has {} bytes of data", data.size()));
  }
  if (BytesOf(array.extent, type->bytes, data.size()) != end - begin) {
    RejectArrays(where, fmt::format("it has {} bytes", end - begin),
                 "its shape and dtype need another number");
  }
  array.bytes = data.subspan(begin, end - begin);
  return array;
}

/// Returns what follows `'key':` in the dictionary of an .npy file.
std::string_view AfterKey(std::string_view header, std::string_view key,
                          const std::string& file) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) {
    RejectArrays(file, fmt::format("its header has no {}", key),
                 "an .npy file has descr, fortran_order and shape");
  }
  header.remove_prefix(at + key.size() + 3);
  while (header.starts_with(' ')) header.remove_prefix(1);
  return header;
}

std::vector<size_t> NpyExtent(std::string_view shape, const std::string& file) {
  const size_t end = shape.find(')');
  if (!shape.starts_with('(') || end == std::string_view::npos) {
    RejectArrays(file, "its shape is no tuple", "it is one of whole numbers");
  }
  std::string list = "[" + std::string(shape.substr(1, end - 1));
  while (list.ends_with(',') || list.ends_with(' ')) list.pop_back();
  const Json parsed = Json::parse(list + "]", nullptr, false);
  return ExtentOf(parsed, file);
}

template <typename Wide>
Array<Wide> Prepared(const StoredArray& stored, size_t of_one) {
  Array<Wide> array;
  array.extent = stored.extent;
  array.values.resize(stored.bytes.size() / of_one);
  return array;
}

const StoredType& Known(const StoredArray& stored, const std::string& where) {
  const StoredType* type = TypeNamed(stored.type, &StoredType::name);
  if (type == nullptr) {
    RejectArrays(where, fmt::format("it is of type {}", Printable(stored.type)),
                 "F32, BF16, F16, F8_E4M3, F8_E5M2, I64, I32 and U8 are read");
  }
  return *type;
}

}  // namespace

std::map<std::string, StoredArray> ParseSafetensors(
    std::span<const std::byte> bytes, const std::string& file) {
  const uint64_t length = bytes.size() < 8 ? 0 : LittleEndian(bytes.first(8));
  if (bytes.size() < 8 ||
      length > std::min(kMaxHeaderBytes, bytes.size() - 8)) {
    RejectArrays(
        file, fmt::format("its header has {} bytes", length),
        "a safetensors file begins with the length of one of at most 2^20");
  }
  const Json header = Json::parse(Text(bytes.subspan(8, length)), nullptr,
                                  /*allow_exceptions=*/false);
  if (!header.is_object()) {
    RejectArrays(file, "its header is no JSON object",
                 "that of safetensors is one");
  }
  std::map<std::string, StoredArray> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    tensors[name] = EntryOf(entry, bytes.subspan(8 + length),
                            fmt::format("{}: {}", file, Printable(name)));
  }
  return tensors;
}

StoredArray ParseNpy(std::span<const std::byte> bytes,
                     const std::string& file) {
  constexpr std::string_view kMagic("\x93NUMPY", 6);
  if (bytes.size() < 12 || Text(bytes.first(6)) != kMagic) {
    RejectArrays(file, "it does not begin with \\x93NUMPY",
                 "an .npy file does");
  }
  const size_t field = bytes[6] == std::byte{1} ? 2 : 4;
  const uint64_t length = LittleEndian(bytes.subspan(8, field));
  if (length > std::min(kMaxHeaderBytes, bytes.size() - 8 - field)) {
    RejectArrays(file, fmt::format("its header has {} bytes", length),
                 "it must end within the file and have at most 2^20");
  }
  const std::string_view header = Text(bytes.subspan(8 + field, length));
  const std::span<const std::byte> data = bytes.subspan(8 + field + length);
  if (!AfterKey(header, "fortran_order", file).starts_with("False")) {
    RejectArrays(file, "its elements stand column by column",
                 "row-major ones are read: numpy.ascontiguousarray");
  }
  std::string_view descr = AfterKey(header, "descr", file);
  descr = descr.substr(0, descr.find('\'', 1));
  if (!descr.empty()) descr.remove_prefix(1);
  const StoredType* type = TypeNamed(descr, &StoredType::npy);
  if (type == nullptr) {
    RejectArrays(file, fmt::format("its type is {}", Printable(descr)),
                 "<f4, <f2, <i8, <i4 and |u1 are read");
  }
  StoredArray array = {
      .type = std::string(type->name),
      .extent = NpyExtent(AfterKey(header, "shape", file), file),
      .bytes = data};
  if (BytesOf(array.extent, type->bytes, data.size()) != data.size()) {
    RejectArrays(file, fmt::format("it has {} bytes of data", data.size()),
                 "its shape and type need another number");
  }
  return array;
}

Floats FloatsOf(const StoredArray& stored, const std::string& where) {
  const StoredType& type = Known(stored, where);
  if (type.dtype.empty()) {
    RejectArrays(where, fmt::format("it is of type {}", type.name),
                 "this tensor has floats");
  }
  Floats floats = Prepared<float>(stored, type.bytes);
  floats.type = type.dtype;
  if (type.name == "F32") {
    if (!floats.values.empty()) {
      std::memcpy(floats.values.data(), stored.bytes.data(),
                  stored.bytes.size());
    }
    return floats;
  }
  const formats::Format& format =
      formats::FormatByName(type.name == "BF16"  ? "bf16"
                            : type.name == "F16" ? "fp16"
                                                 : type.dtype);
  for (size_t i = 0; i < floats.values.size(); ++i) {
    const auto code = static_cast<uint32_t>(
        LittleEndian(stored.bytes.subspan(i * type.bytes, type.bytes)));
    floats.values[i] = formats::Decode(format, code);
  }
  return floats;
}

Integers IntegersOf(const StoredArray& stored, const std::string& where) {
  const StoredType& type = Known(stored, where);
  if (type.name != "I64" && type.name != "I32") {
    RejectArrays(where, fmt::format("it is of type {}", type.name),
                 "this tensor has integers, I64 or I32");
  }
  Integers integers = Prepared<int64_t>(stored, type.bytes);
  for (size_t i = 0; i < integers.values.size(); ++i) {
    const uint64_t bits =
        LittleEndian(stored.bytes.subspan(i * type.bytes, type.bytes));
    integers.values[i] =
        type.bytes == 8 ? static_cast<int64_t>(bits)
                        : static_cast<int32_t>(static_cast<uint32_t>(bits));
  }
  return integers;
}

Codes CodesOf(const StoredArray& stored, const std::string& where) {
  const StoredType& type = Known(stored, where);
  if (type.bytes != 1) {
    RejectArrays(where, fmt::format("it is of type {}", type.name),
                 "codes and scales are bytes: U8, F8_E4M3 or F8_E5M2");
  }
  Codes codes = Prepared<uint8_t>(stored, 1);
  codes.type = type.dtype;
  for (size_t i = 0; i < codes.values.size(); ++i) {
    codes.values[i] = std::to_integer<uint8_t>(stored.bytes[i]);
  }
  return codes;
}

}  // namespace isoloss::operations
