#include "isoloss/checkpoint/manifest.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"

namespace isoloss::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little,
              "files hold little-endian values, as memory does");

constexpr std::string_view kFormat = "isoloss-checkpoint";
constexpr int64_t kVersion = 1;
constexpr uint64_t kMaxBytes = uint64_t{1} << 62;
/// Up to this step, a run can go on counting without an overflow.
constexpr uint64_t kMaxStep = uint64_t{1} << 53;

const char* TypeName(DataType type) {
  return type == DataType::kF32 ? "F32" : "I64";
}

uint64_t SizeOf(DataType type) { return type == DataType::kF32 ? 4 : 8; }

/// Returns the bytes of a tensor, or nothing if they are more than kMaxBytes.
std::optional<uint64_t> CheckedBytes(const TensorInfo& tensor) {
  uint64_t bytes = SizeOf(tensor.type);
  for (const size_t extent : tensor.shape) {
    if (extent != 0 && bytes > kMaxBytes / extent) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

std::string Dump(const Json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const Json::exception&) {
    ThrowError(ErrorKind::kFormat,
               "{}: a fact or a tensor's name is not UTF-8, but JSON text must "
               "be. Leave it out.",
               kManifestFile);
  }
}

/// Returns the last line and the end of the object.
std::string Seal(std::string_view body) {
  return fmt::format(",\n  \"manifest_xxh3\": \"{}\"\n}}\n",
                     DigestToHex(DigestOf(body)));
}

/// Reads members of the right type, or says which one has the wrong type.
class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path) {}

  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> what,
                         Args&&... args) const {
    ThrowError(ErrorKind::kFormat,
               "{}: {}. The file is damaged or not from this program; use "
               "another checkpoint.",
               path_.string(), fmt::format(what, std::forward<Args>(args)...));
  }
  const Json& Member(const Json& object, const char* key,
                     Json::value_t type) const {
    const auto found = object.find(key);
    if (found == object.end() || found->type() != type) {
      Fail("`{}` is missing or of the wrong type", key);
    }
    return *found;
  }
  std::string Text(const Json& object, const char* key) const {
    return Member(object, key, Json::value_t::string).get<std::string>();
  }
  uint64_t Count(const Json& object, const char* key) const {
    return Member(object, key, Json::value_t::number_unsigned).get<uint64_t>();
  }
  uint64_t Hex(const Json& object, const char* key) const {
    const std::string text = Text(object, key);
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (DigestToHex(value) != text) {
      Fail("`{}` is `{}`, but must be 16 hexadecimal digits", key, text);
    }
    return value;
  }

 private:
  const fs::path& path_;
};

TensorInfo ParseTensor(const Json& json, const Reader& reader) {
  if (!json.is_object()) reader.Fail("an entry of `tensors` is no object");
  TensorInfo tensor;
  tensor.name = reader.Text(json, "name");
  const std::string type = reader.Text(json, "dtype");
  if (type != "F32" && type != "I64") {
    reader.Fail("tensor `{}` has type `{}`, but F32 and I64 are known",
                tensor.name, type);
  }
  tensor.type = type == "F32" ? DataType::kF32 : DataType::kI64;
  for (const Json& extent :
       reader.Member(json, "shape", Json::value_t::array)) {
    if (!extent.is_number_unsigned()) {
      reader.Fail("the shape of tensor `{}` has an extent that is no count",
                  tensor.name);
    }
    tensor.shape.push_back(extent.get<size_t>());
  }
  const auto bytes = CheckedBytes(tensor);
  const uint64_t stated = reader.Count(json, "bytes");
  if (!bytes || *bytes != stated) {
    reader.Fail("tensor `{}` has {} bytes, which its shape has not",
                tensor.name, stated);
  }
  return tensor;
}

std::string WithoutSeal(std::string_view text, const Reader& reader) {
  const size_t seal_size = Seal({}).size();
  const std::string_view body =
      text.substr(0, text.size() - std::min(text.size(), seal_size));
  if (text.substr(body.size()) != Seal(body)) {
    reader.Fail("its {} bytes do not end in their digest", text.size());
  }
  return std::string(body);
}

uint64_t HeaderDigest(const Manifest& manifest) {
  return DigestOf(TensorsHeader(manifest.step, manifest.tensors));
}

uint64_t TensorsFileBytes(const Manifest& manifest) {
  uint64_t bytes = TensorsHeader(manifest.step, manifest.tensors).size();
  for (const TensorInfo& tensor : manifest.tensors) bytes += tensor.bytes();
  return bytes;
}

/// Values that follow from the rest of the manifest must equal what it says.
void CheckDerived(const Json& json, const Manifest& manifest,
                  const Reader& reader) {
  const Json& files = reader.Member(json, "files", Json::value_t::object);
  const Json& file = reader.Member(files, std::string(kTensorsFile).c_str(),
                                   Json::value_t::object);
  if (reader.Count(file, "bytes") != TensorsFileBytes(manifest)) {
    reader.Fail("`files` states a size that its tensors do not have");
  }
  if (reader.Hex(json, "header_xxh3") != HeaderDigest(manifest)) {
    reader.Fail("`header_xxh3` is not that of its tensors");
  }
  if (reader.Hex(json, "state_xxh3") != manifest.StateDigest()) {
    reader.Fail("`state_xxh3` is not that of its tensors");
  }
}

}  // namespace

size_t TensorInfo::bytes() const {
  size_t bytes = SizeOf(type);
  for (const size_t extent : shape) bytes *= extent;
  return bytes;
}

std::string StepFolderName(int64_t step) {
  return fmt::format("step-{:06}", step);
}

std::optional<int64_t> ParseStepFolderName(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (step < 0 || StepFolderName(step) != name) return std::nullopt;
  return step;
}

uint64_t Manifest::StateDigest() const {
  Digest digest;
  const auto update = [&](uint64_t number) {
    digest.Update(&number, sizeof(number));
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    update(tensor.name.size());
    digest.Update(tensor.name);
    digest.Update(TypeName(tensor.type));
    update(tensor.shape.size());
    for (const size_t extent : tensor.shape) update(extent);
    update(digests[i]);
  }
  return digest.Value();
}

std::string Manifest::ToText() const {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["step"] = static_cast<uint64_t>(step);
  json["files"][std::string(kTensorsFile)]["bytes"] = TensorsFileBytes(*this);
  json["header_xxh3"] = DigestToHex(HeaderDigest(*this));
  json["state_xxh3"] = DigestToHex(StateDigest());
  json["facts"] = Json::object();
  for (const auto& [name, text] : facts) json["facts"][name] = text;
  json["tensors"] = Json::array();
  for (size_t i = 0; i < tensors.size(); ++i) {
    json["tensors"].push_back({{"name", tensors[i].name},
                               {"dtype", TypeName(tensors[i].type)},
                               {"shape", tensors[i].shape},
                               {"bytes", tensors[i].bytes()},
                               {"xxh3", DigestToHex(digests[i])}});
  }
  std::string body = Dump(json, 2);
  body.resize(body.rfind("\n}"));
  return body + Seal(body);
}

Manifest ParseManifest(std::string_view text, const fs::path& path) {
  const Reader reader(path);
  const Json json = Json::parse(WithoutSeal(text, reader) + "}",
                                /*callback=*/nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) reader.Fail("it is no JSON object");
  const std::string format = reader.Text(json, "format");
  const uint64_t version = reader.Count(json, "version");
  if (format != kFormat || version != kVersion) {
    reader.Fail(
        "it is of format `{}`, version {}, but `{}`, version {} is "
        "what can be read",
        format, version, kFormat, kVersion);
  }
  Manifest manifest;
  const uint64_t step = reader.Count(json, "step");
  if (step > kMaxStep) {
    reader.Fail("`step` is {}, but must be at most {}", step, kMaxStep);
  }
  manifest.step = static_cast<int64_t>(step);
  const Json& facts = reader.Member(json, "facts", Json::value_t::object);
  for (const auto& [name, fact] : facts.items()) {
    if (!fact.is_string()) reader.Fail("fact `{}` is no text", name);
    manifest.facts[name] = fact.get<std::string>();
  }
  for (const Json& entry :
       reader.Member(json, "tensors", Json::value_t::array)) {
    manifest.tensors.push_back(ParseTensor(entry, reader));
    manifest.digests.push_back(reader.Hex(entry, "xxh3"));
  }
  CheckTensors(manifest.tensors, path);
  CheckDerived(json, manifest, reader);
  return manifest;
}

std::string TensorsHeader(int64_t step, std::span<const TensorInfo> tensors) {
  Json json;
  json["__metadata__"] = {{"format", kFormat}, {"step", std::to_string(step)}};
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const uint64_t end = offset + tensor.bytes();
    json[tensor.name] = {{"dtype", TypeName(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = Dump(json, -1);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return header + text;
}

void CheckTensors(std::span<const TensorInfo> tensors, const fs::path& where) {
  const Reader reader(where);
  std::set<std::string_view> names;
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__") {
      reader.Fail("a tensor is named `{}`, which no tensor may be",
                  tensor.name);
    }
    if (!names.insert(tensor.name).second) {
      reader.Fail("two tensors are named `{}`", tensor.name);
    }
    bytes += CheckedBytes(tensor).value_or(kMaxBytes + 1);
    if (bytes > kMaxBytes) {
      reader.Fail("tensor `{}` is too large", tensor.name);
    }
  }
}

}  // namespace isoloss::checkpoint
