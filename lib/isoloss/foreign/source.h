// Holds a log as the user gave it, while one reader after another looks at it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace isoloss::foreign {

/// A log is read into memory up to this length.
inline constexpr size_t kMostLogBytes = size_t{512} << 20;

/// A source is a file, a folder or a text in memory. What a reader asks for is
/// read once, and only then.
class Source {
 public:
  static Source OfPath(std::filesystem::path path);
  /// The content must live as long as the source.
  static Source OfContent(std::string_view content);

  bool is_folder() const { return is_folder_; }
  /// Returns the path; empty for a content.
  const std::filesystem::path& path() const { return path_; }

  /// Returns up to kHeadBytes of the front; empty for a folder.
  static constexpr size_t kHeadBytes = 64;
  std::string_view head() const { return head_; }
  /// Returns all bytes of a file or content.
  /// Errors   FormatError beyond kMostLogBytes; IoError.
  std::string_view bytes();
  /// Returns the text without its byte order mark.
  /// Errors   as bytes(), and as RefuseBinary.
  std::string_view text();
  /// Returns the text as one JSON document. It is discarded (ParseJson) if the
  /// text is something else, or a folder.
  const nlohmann::json& json();

 private:
  std::filesystem::path path_;
  bool is_folder_ = false;
  std::string head_;
  std::string file_;
  std::string utf8_;  ///< of a file in UTF-16
  std::optional<std::string_view> bytes_;
  std::optional<nlohmann::json> json_;
};

}  // namespace isoloss::foreign
