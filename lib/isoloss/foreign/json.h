// Reads JSON as training programs write it: with bare NaN and Infinity.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {

/// Nesting is read to this depth; a deeper text is no log.
inline constexpr int kMaxJsonDepth = 64;

/// A tree of values takes some fifteen times the memory of its text.
inline constexpr size_t kMostJsonBytes = size_t{256} << 20;

/// Parses JSON. The result is discarded (is_discarded()) if the text is no
/// JSON, nests too deep or has more than kMostJsonBytes. Bare NaN, Infinity and
/// -Infinity become the strings "NaN", "Infinity" and "-Infinity".
nlohmann::json ParseJson(std::string_view text);

/// Tells why ParseJson discards the text, to follow "the file begins as JSON,
/// but"; without a point at the end. Empty if ParseJson does not discard it.
std::string JsonFault(std::string_view text);

/// Goes through the members of an object as they are written, since a tree of
/// each of a million lines would take most of the time. It checks no inside of
/// a value.
class JsonMembers {
 public:
  explicit JsonMembers(std::string_view object);

  /// Goes to the next member. Returns false after the last member, or if the
  /// text is no member.
  bool Next();
  std::string_view key() const { return key_; }  ///< between its quotes
  /// Returns the value with its quotes or brackets.
  std::string_view value() const { return value_; }
  /// After Next() returned false: the text is an object and nothing else.
  bool sound() const { return sound_; }

 private:
  void SkipBlanks();
  bool Take(char c);

  std::string_view rest_;
  std::string_view key_;
  std::string_view value_;
  bool first_ = true;
  bool open_ = false;
  bool sound_ = false;
};

/// Returns the text between the quotes of a string; escapes are kept.
std::optional<std::string_view> JsonString(std::string_view value);
/// Reads the value as a number, or as a word that stands for a number (NaN).
std::optional<double> JsonNumber(std::string_view value);

/// Reads a number, or a string with a number that JSON lacks ("NaN").
std::optional<double> NumberOf(const nlohmann::json& value);
/// Reads a whole number, also if it is written 31.0; empty beyond kMostWhole.
std::optional<int64_t> WholeOf(const nlohmann::json& value);

/// Adds `value` with the digits of its shortest form.
void AddShortest(Series& series, int64_t step, double value);

}  // namespace isoloss::foreign
