// Reads and writes JSON files that only isoloss writes and that carry a digest
// of their content. Only sources of this module may include this header,
// because it needs nlohmann-json.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "isoloss/base/text_file.h"

namespace isoloss::gate {

using SealedJson = nlohmann::ordered_json;

/// Returns the digest of `content`, which does not hold it yet.
std::string SealOf(const SealedJson& content);

/// Writes `content` with its digest under the key "digest", all or nothing.
/// Text that is not UTF-8, as in names of experiments, is replaced.
/// Errors  IoError
void WriteSealed(SealedJson content, const std::filesystem::path& path);

/// Holds a file that was read and that anybody may have written.
class SealedFile {
 public:
  /// `rule` says what such a file is, and gives the remedy. It ends every
  /// message.
  /// Errors  IoError; FormatError if it has more than `max_bytes` or is no
  ///         JSON object
  SealedFile(std::filesystem::path path, std::string rule,
             size_t max_bytes = kMaxTextFileBytes);

  const SealedJson& content() const { return content_; }

  /// Throws a FormatError, which says that `what` was found against the rule.
  [[noreturn]] void Reject(const std::string& what) const;

  /// Errors  FormatError if the file is of another version
  void CheckVersion(int64_t version) const;

  /// Errors  FormatError if `object` has no member `key` of the type of `value`
  template <typename T>
  void Read(const SealedJson& object, const char* key, T& value) const {
    if (!object.is_object() || !object.contains(key) ||
        !HasType<T>(object[key])) {
      Reject(fmt::format("key {} is missing or of another type", key));
    }
    value = object[key].template get<T>();
  }

  /// `digest` is that of the content that was read.
  /// Errors  FormatError if it is not the digest that the file carries
  void CheckSeal(const std::string& digest) const;

 private:
  template <typename T>
  static bool HasType(const SealedJson& value) {
    if constexpr (std::is_same_v<T, SealedJson>) {
      return value.is_array();
    } else if constexpr (std::is_same_v<T, double>) {
      return value.is_number();
    } else if constexpr (std::is_same_v<T, int64_t>) {
      return value.is_number_integer();
    } else if constexpr (std::is_same_v<T, std::string>) {
      return value.is_string();
    } else if constexpr (std::is_same_v<T,
                                        std::map<std::string, std::string>>) {
      return value.is_object() &&
             std::ranges::all_of(value, HasType<std::string>);
    } else {
      return value.is_array() &&
             std::ranges::all_of(value, HasType<typename T::value_type>);
    }
  }

  std::filesystem::path path_;
  std::string rule_;
  SealedJson content_;
};

}  // namespace isoloss::gate
