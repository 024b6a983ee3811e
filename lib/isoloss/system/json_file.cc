#include "isoloss/system/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"

namespace isoloss::system {
namespace {

using document::Json;

constexpr size_t kMostValues = 500'000;
constexpr size_t kMostDepth = 40;
constexpr size_t kMostKeys = 2'000;

/// Counts while a text is parsed, and says what the text has too much of; "" if
/// nothing.
class Counter {
 public:
  /// Objects keep their keys in a list, so an object of many keys would take
  /// for ever.
  std::string Count(size_t depth, Json::parse_event_t event) {
    using Event = Json::parse_event_t;
    if (++events_ > 2 * kMostValues) {
      return fmt::format("it has more than {} values", kMostValues);
    }
    if (depth > kMostDepth) {
      return fmt::format("it has more than {} levels", kMostDepth);
    }
    keys_.resize(std::max(keys_.size(), depth + 2));
    if (event == Event::object_start) keys_[depth + 1] = 0;
    if (event == Event::key && ++keys_[depth] > kMostKeys) {
      return fmt::format("an object has more than {} keys", kMostKeys);
    }
    return "";
  }

 private:
  size_t events_ = 0;
  std::vector<size_t> keys_;  // of the object at each depth
};

bool HasType(std::string_view type, const Json& value) {
  const bool nullable = type.ends_with('?') || type[0] == 'n';
  return (nullable && value.is_null()) ||
         (type[0] == 's' && value.is_string()) ||
         (type[0] == 'i' && value.is_number_integer()) ||
         (type[0] == 'n' && value.is_number()) ||
         (type[0] == 'b' && value.is_boolean()) ||
         (type[0] == 'o' && value.is_object());
}

}  // namespace

JsonFile::JsonFile(const std::filesystem::path& path, const std::string& kind)
    : file_(Printable(path.string())), kind_(kind) {
  json_ = std::make_unique<const Json>(
      Parse(ReadTextFile(path, "Give another file, or have it made again.")));
}

JsonFile::~JsonFile() = default;

void JsonFile::Check(const char* shape, const Json* value) const {
  CheckShape(Json::parse(shape), value == nullptr ? *json_ : *value,
             "the file");
}

void JsonFile::CheckShape(const Json& shape, const Json& value,
                          const std::string& where) const {
  if (shape.is_string()) {
    if (HasType(shape.get_ref<const std::string&>(), value)) return;
    Reject(fmt::format("{} is of another type", where));
  }
  if (shape.is_object()) return CheckMembers(shape, value, where);
  if (!value.is_array()) Reject(fmt::format("{} is no list", where));
  for (size_t i = 0; i < value.size(); ++i) {
    CheckShape(shape[0], value[i], fmt::format("{}[{}]", where, i));
  }
}

void JsonFile::CheckMembers(const Json& shape, const Json& value,
                            const std::string& where) const {
  if (value.is_null() && shape.contains("nullable")) return;
  if (!value.is_object()) Reject(fmt::format("{} is no object", where));
  for (const auto& [key, part] : shape.items()) {
    if (key == "nullable") continue;
    if (!value.contains(key)) {
      Reject(fmt::format("{} has no key `{}`", where, key));
    }
    CheckShape(part, value[key], fmt::format("{}.{}", where, key));
  }
}

void JsonFile::Reject(const std::string& what) const {
  ThrowError(ErrorKind::kFormat,
             "{}: it is no {} of isoloss: {}. Give another file, or have it "
             "made again.",
             file_, kind_, what);
}

Json JsonFile::Parse(const std::string& text) const {
  Counter counter;
  try {
    return Json::parse(text,
                       [&](int depth, Json::parse_event_t event, const Json&) {
                         const std::string fault =
                             counter.Count(static_cast<size_t>(depth), event);
                         if (!fault.empty()) Reject(fault);
                         return true;
                       });
  } catch (const Json::exception& error) {
    Reject(fmt::format("it can't be parsed: {}", Printable(error.what())));
  }
}

}  // namespace isoloss::system
