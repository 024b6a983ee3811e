// Any bytes as a safetensors or .npy file or as a mapping: refused with an
// Error, or tensors that lie within them.
//
// The first byte says as what: safetensors, .npy, or a mapping, which finds the
// two seeds under any file name.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/operations/array_file.h"
#include "isoloss/operations/mapping.h"

namespace {

using namespace isoloss;              // NOLINT(google-build-using-namespace)
using namespace isoloss::operations;  // NOLINT(google-build-using-namespace)

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Safetensors() {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("c":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  return text + header + std::string(8, '\0');
}

std::string Npy() {
  const std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }\n";
  return std::string("\x93NUMPY\x01\x00", 8) +
         static_cast<char>(header.size()) + '\0' + header +
         std::string(4, '\0');
}

constexpr const char* kMapping = R"(run = "r"
step = 1
[[operations]]
type = "dispatch"
module = "m"
[operations.tensors]
tokens = "a.safetensors:a"
source = "a.safetensors:b"
rows = "a.npy"
[operations.dtypes]
rows = "bfloat16"
)";

/// What a tensor becomes has as many values as its extent says.
void Convert(const StoredArray& array) {
  const auto whole = [](const auto& values) {
    size_t count = 1;
    for (const size_t size : values.extent) count *= size;
    ISOLOSS_ASSERT(count == values.values.size());
  };
  const auto attempt = [](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
    }
  };
  attempt([&] { whole(FloatsOf(array, "a")); });
  attempt([&] { whole(IntegersOf(array, "a")); });
  attempt([&] { whole(CodesOf(array, "a")); });
}

void Read(uint8_t kind, std::string_view text) {
  if (kind == 0) {
    for (const auto& [name, array] : ParseSafetensors(Bytes(text), "f")) {
      Convert(array);
    }
  } else if (kind == 1) {
    Convert(ParseNpy(Bytes(text), "f"));
  } else {
    const std::string safetensors = Safetensors();
    const std::string npy = Npy();
    ParseMapping(text, "m.toml", [&](const std::string& name) {
      ISOLOSS_ASSERT(name.find('/') == std::string::npos);
      return Bytes(name.ends_with(".npy") ? npy : safetensors);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    Read(data[0] % 3, {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat ||
                   error.kind() == ErrorKind::kConfig);
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  return {std::string(1, '\0') + Safetensors(), '\1' + Npy(),
          std::string("\2") + kMapping};
}
