#include "isoloss/base/toml_text.h"

#include <algorithm>
#include <cstddef>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

/// Counts the dots of keys. What stands in strings and comments is passed over
/// by TOML's own rules up to the first error, at which the parser ends.
class KeyScanner {
 public:
  explicit KeyScanner(std::string_view text) : text_(text) {}

  /// Line of the first key with more than kMaxKeyParts parts; 0: there is none.
  toml::source_index DeepLine() {
    int parts = 1;
    while (place_ < text_.size()) {
      const char c = text_[place_];
      if (c == '#') {
        place_ = std::min(text_.find('\n', place_), text_.size());
      } else if (c == '"' || c == '\'') {
        SkipString(c);
      } else {
        if (c == '.') ++parts;
        if (std::string_view("\n=[]{},").find(c) != std::string_view::npos) {
          parts = 1;
        }
        if (c == '\n') ++line_;
        if (parts > kMaxKeyParts) return line_;
        ++place_;
      }
    }
    return 0;
  }

 private:
  bool IsAt(std::string_view what) const {
    return text_.substr(place_).starts_with(what);
  }

  void SkipString(char quote) {
    const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
    const bool has_lines = IsAt(three);
    place_ += has_lines ? three.size() : 1;
    while (place_ < text_.size()) {
      const char c = text_[place_];
      if (has_lines && IsAt(three)) {
        place_ += three.size();
        // Up to two more are the string's own.
        for (int i = 0; i < 2 && IsAt({&quote, 1}); ++i) ++place_;
        return;
      }
      if (!has_lines && c == '\n') return;  // an error
      ++place_;
      if (!has_lines && c == quote) return;
      if (c == '\n') ++line_;
      if (c == '\\' && quote == '"' && place_ < text_.size() &&
          text_[place_] != '\n') {
        ++place_;
      }
    }
  }

  std::string_view text_;
  size_t place_ = 0;
  toml::source_index line_ = 1;
};

}  // namespace

toml::table ParseToml(std::string_view text, std::string_view file,
                      std::string_view remedy) {
  const auto fail = [&](std::string_view what,
                        const toml::source_position& place) {
    ThrowError(ErrorKind::kConfig, "{}:{}:{}: {}. {}", file, place.line,
               place.column, what, remedy);
  };
  if (text.size() > kMaxTomlBytes) {
    fail("The text has more than 4 MiB, but that of a TOML file has less",
         {1, 1});
  }
  const toml::source_index deep = KeyScanner(text).DeepLine();
  if (deep > 0) fail("A key has more than 16 parts between dots", {deep, 1});
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    fail(error.description(), error.source().begin);
  }
  return {};
}

}  // namespace isoloss
