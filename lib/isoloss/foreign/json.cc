#include "isoloss/foreign/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "isoloss/base/printable.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kNonFiniteWords[] = {"NaN", "-Infinity", "Infinity"};

/// A text that is parsed at once has at most this many; each takes 100 bytes.
constexpr size_t kMostJsonValues = 16'000'000;
/// The parser keeps blanks for its message.
constexpr size_t kMostJsonBlanks = size_t{1} << 20;

/// The outline tells what must be known of a text before it is parsed.
struct Outline {
  int depth = 0;            ///< of the nesting
  size_t values = 0;        ///< at least this many
  size_t blanks = 0;        ///< in the longest row of blanks
  bool non_finite = false;  ///< it has words that JSON does not know
};

Outline OutlineOf(std::string_view text) {
  Outline outline;
  int depth = 0;
  size_t blanks = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool blank =
        std::string_view(" \t\r\n").find(text[i]) != std::string_view::npos;
    blanks = blank ? blanks + 1 : 0;
    outline.blanks = std::max(outline.blanks, blanks);
    switch (text[i]) {
      case '"':
        // The string lasts to its closing quote; without one, it is no JSON.
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        break;
      case '{':
      case '[':
        outline.depth = std::max(outline.depth, ++depth);
        ++outline.values;
        break;
      case ',':
        ++outline.values;
        break;
      case '}':
      case ']':
        --depth;
        break;
      case 'N':
      case 'I':
        outline.non_finite = true;
        break;
      default:
        break;
    }
  }
  return outline;
}

/// Copies `text`, with quotes around the words that JSON does not know.
std::string QuoteNonFinite(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + text.size() / 16);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      quoted += c;
      if (++i < text.size()) quoted += text[i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    std::string_view word;
    if (!in_string && (c == 'N' || c == '-' || c == 'I')) {
      for (const std::string_view known : kNonFiniteWords) {
        if (text.substr(i).starts_with(known)) word = known;
      }
    }
    if (word.empty()) {
      quoted += c;
      continue;
    }
    quoted.append(1, '"').append(word).append(1, '"');
    i += word.size() - 1;
  }
  return quoted;
}

/// Copies `text`, with numbers of the same length in place of the words that
/// JSON does not know.
std::string WithoutNonFinite(std::string_view text) {
  std::string copy = QuoteNonFinite(text);
  if (copy.size() == text.size()) return copy;
  copy = text;
  for (const std::string_view word : kNonFiniteWords) {
    for (size_t at = copy.find(word); at != std::string::npos;
         at = copy.find(word, at + 1)) {
      copy.replace(at, word.size(), "0" + std::string(word.size() - 1, ' '));
    }
  }
  return copy;
}

/// Returns the place after the closing quote of the string that begins at
/// `begin`; 0 if there is none.
size_t StringEnd(std::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '"') return i + 1;
    if (text[i] == '\\') ++i;
  }
  return 0;
}

/// Returns the place after the value at the front of `text`; 0: it has no end.
size_t ValueEnd(std::string_view text) {
  int depth = 0;
  size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"') {
      i = StringEnd(text, i);
      if (i == 0 || depth == 0) return i;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return i;
      if (--depth == 0) return i + 1;
    }
    if (depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r'))
      return i;
    ++i;
  }
  return depth == 0 ? i : 0;
}

/// Keeps only the place of a text's first fault.
struct FaultFinder : nlohmann::json_sax<nlohmann::json> {
  size_t at = 0;  ///< counted from 1; 0: none

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/,
                    const string_t& /*text*/) override {
    return true;
  }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*size*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*fault*/) override {
    at = position;
    return false;
  }
};

/// Tells what stands at that place, and in which line.
std::string FaultAt(std::string_view text, size_t at) {
  // The parser may have read to the end of a word, or a comment's second byte.
  while (at > 0 && (text[at] == '\n' || text[at - 1] == '/')) --at;
  const auto line = 1 + std::ranges::count(text.substr(0, at), '\n');
  const size_t before = text.substr(0, at).find_last_not_of(" \t\r\n");
  const char last = before == std::string_view::npos ? ' ' : text[before];
  std::string what;
  switch (text[at]) {
    case '/':
    case '#':
      what = "a comment, and JSON has no comments";
      break;
    case '\'':
      what = "a single quote, and JSON has double ones";
      break;
    case ']':
    case '}':
      what = fmt::format("`{}`{}, where JSON has another character", text[at],
                         last == ',' ? " after a comma" : "");
      break;
    default:
      what = fmt::format(
          "`{}`, where JSON has another character",
          Printable(std::string(text.substr(
              at, std::min<size_t>(
                      12, text.find_first_of(" \t\r\n,:}]", at + 1) - at)))));
  }
  return fmt::format(
      "line {} has {}. Mend that place, or write the file with a JSON library",
      line, what);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  nlohmann::json discarded(nlohmann::json::value_t::discarded);
  if (text.size() > kMostJsonBytes) return discarded;
  // The parser's own callback would tell the depth, too. But it looks through
  // all values of a list whenever a value is added.
  const Outline outline = OutlineOf(text);
  if (outline.depth > kMaxJsonDepth || outline.values > kMostJsonValues ||
      outline.blanks > kMostJsonBlanks) {
    return discarded;
  }
  return outline.non_finite
             ? nlohmann::json::parse(QuoteNonFinite(text), nullptr, false)
             : nlohmann::json::parse(text, nullptr, false);
}

std::string JsonFault(std::string_view text) {
  if (text.size() > kMostJsonBytes) {
    return fmt::format(
        "has {} bytes, and {} are read at most. Give a smaller part",
        text.size(), kMostJsonBytes);
  }
  const Outline outline = OutlineOf(text);
  if (outline.depth > kMaxJsonDepth) {
    return fmt::format(
        "nests {} levels deep, and {} are read at most. Give the log of a run",
        outline.depth, kMaxJsonDepth);
  }
  if (outline.values > kMostJsonValues) {
    return fmt::format(
        "has {} values, and {} are read at most. Give the log "
        "of a run",
        outline.values, kMostJsonValues);
  }
  if (outline.blanks > kMostJsonBlanks) {
    return fmt::format(
        "has {} blanks in a row, and {} are read at most. Write "
        "the file again without them",
        outline.blanks, kMostJsonBlanks);
  }
  FaultFinder finder;
  nlohmann::json::sax_parse(WithoutNonFinite(text), &finder);
  if (finder.at == 0) return "";
  if (finder.at > text.size()) {
    return fmt::format(
        "ends within a value, after {} bytes. Get it whole: copy it or write "
        "it again",
        text.size());
  }
  return FaultAt(text, finder.at - 1);
}

JsonMembers::JsonMembers(std::string_view object) : rest_(object) {
  open_ = Take('{');
}

void JsonMembers::SkipBlanks() {
  const size_t end = rest_.find_first_not_of(" \t\r\n");
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end);
}

bool JsonMembers::Take(char c) {
  SkipBlanks();
  if (!rest_.starts_with(c)) return false;
  rest_.remove_prefix(1);
  return true;
}

bool JsonMembers::Next() {
  if (!open_) return false;
  open_ = false;
  if (Take('}')) {
    SkipBlanks();
    sound_ = rest_.empty();
    return false;
  }
  if (!first_ && !Take(',')) return false;
  first_ = false;
  SkipBlanks();
  const size_t key_end = ValueEnd(rest_);
  if (key_end < 2 || rest_.front() != '"') return false;
  key_ = rest_.substr(1, key_end - 2);
  rest_.remove_prefix(key_end);
  if (!Take(':')) return false;
  SkipBlanks();
  const size_t value_end = ValueEnd(rest_);
  if (value_end == 0) return false;
  value_ = rest_.substr(0, value_end);
  rest_.remove_prefix(value_end);
  open_ = true;
  return true;
}

std::optional<std::string_view> JsonString(std::string_view value) {
  if (value.size() < 2 || value.front() != '"') return std::nullopt;
  return value.substr(1, value.size() - 2);
}

std::optional<double> JsonNumber(std::string_view value) {
  if (const auto text = JsonString(value)) {
    const auto number = ParsePlainNumber(*text);
    return number && !std::isfinite(*number) ? number : std::nullopt;
  }
  return ParsePlainNumber(value);
}

std::optional<double> NumberOf(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto number = ParseNumber(value.get_ref<const std::string&>());
  if (!number || std::isfinite(*number)) return std::nullopt;
  return number;
}

std::optional<int64_t> WholeOf(const nlohmann::json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::floor(number) ||
      std::abs(number) > static_cast<double>(kMostWhole)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

void AddShortest(Series& series, int64_t step, double value) {
  std::array<char, 32> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value);
  series.Add(
      step, value,
      std::string_view(text.data(), static_cast<size_t>(end - text.data())));
}

}  // namespace isoloss::foreign
