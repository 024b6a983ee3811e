#include "isoloss/foreign/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <system_error>

namespace isoloss::foreign {
namespace {

constexpr char kEscape = '\x1B';

/// Returns the line without control sequences; `kept` may hold the text.
std::string_view WithoutControls(std::string_view line, std::string& kept) {
  if (line.find(kEscape) == std::string_view::npos) return line;
  kept.clear();
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != kEscape) {
      kept += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') {
      ++i;
      while (i + 1 < line.size() && (line[i + 1] < '@' || line[i + 1] > '~')) {
        ++i;
      }
      ++i;
    }
  }
  return kept;
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::optional<double> ParseSpelled(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (EqualIgnoringCase(text, "nan")) return std::nan("");
  if (EqualIgnoringCase(text, "inf") || EqualIgnoringCase(text, "infinity")) {
    const double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
  }
  return std::nullopt;
}

/// Copies a number without separators of thousands: one to three digits, then
/// groups of a comma and three. Empty if the commas stand elsewhere, or after a
/// zero as in 0,001, where the comma is a decimal sign.
std::optional<std::string> WithoutThousands(std::string_view text) {
  std::string plain;
  size_t digits = 0;  // since the beginning or the last comma
  bool grouped = false;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (i == 0 && (text[i] == '-' || text[i] == '+')) {
      plain += text[i];
      continue;
    }
    if (!digit && text[i] != ',') break;
    if (digit) {
      ++digits;
      plain += text[i];
      continue;
    }
    if (grouped ? digits != 3 : digits == 0 || digits > 3) return std::nullopt;
    if (!grouped && plain[plain.size() - digits] == '0') return std::nullopt;
    grouped = true;
    digits = 0;
  }
  plain += text.substr(i);
  if (digits != 3 || text.substr(i).find(',') != std::string_view::npos) {
    return std::nullopt;
  }
  return plain;
}

/// The longest printed number has fewer digits: 1.8e308 without an exponent.
constexpr size_t kMostNumberLength = 400;

/// Returns whether the word is a path, as "[/data/eval/train.py:33]", or tells
/// the name of a run, as "run=test".
bool IsPathOrSetting(std::string_view word) {
  word.remove_prefix(std::min(word.size(), word.find_first_not_of("[({<\"'")));
  constexpr std::string_view kRuns[] = {"run",        "name",    "exp",
                                        "experiment", "project", "job",
                                        "user",       "host",    "tag"};
  const std::string_view key = word.substr(0, word.find('='));
  return word.starts_with('/') || word.find(".py") != word.npos ||
         (key.size() < word.size() &&
          std::ranges::any_of(kRuns, [key](std::string_view run) {
            return key.ends_with(run);
          }));
}

bool BeginsAWord(std::span<const std::string_view> begins,
                 std::string_view words) {
  constexpr std::string_view kMarks = "\"'*=-:";
  while (!Trimmed(words).empty()) {
    std::string_view word = TakeWord(words);
    word.remove_prefix(std::min(word.size(), word.find_first_not_of(kMarks)));
    if (std::ranges::any_of(begins, [word](std::string_view begin) {
          return word.starts_with(begin);
        })) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string SmallLetters(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return lower;
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

void SkipBlanks(std::string_view& rest) {
  while (!rest.empty() && IsBlank(rest.front())) rest.remove_prefix(1);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (IsBlank(text.front()) || text.front() == '\r')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (IsBlank(text.back()) || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

std::string Utf8OfUtf16(std::string_view bytes) {
  constexpr uint32_t kReplacement = 0xFFFD;
  const bool big = bytes.starts_with('\xFE');
  const auto unit = [&](size_t i) {
    const auto first = static_cast<unsigned char>(bytes[i]);
    const auto second = static_cast<unsigned char>(bytes[i + 1]);
    return static_cast<uint32_t>(big ? first << 8 | second
                                     : second << 8 | first);
  };
  const auto is_half = [](uint32_t code, uint32_t begin) {
    return code >= begin && code < begin + 0x400;
  };
  std::string text;
  text.reserve(bytes.size() / 2);
  const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  for (size_t i = 2; i + 1 < bytes.size(); i += 2) {
    uint32_t code = unit(i);
    if (is_half(code, 0xD800) && i + 3 < bytes.size() &&
        is_half(unit(i + 2), 0xDC00)) {
      code = 0x10000 + ((code - 0xD800) << 10) + (unit(i + 2) - 0xDC00);
      i += 2;
    } else if (is_half(code, 0xD800) || is_half(code, 0xDC00)) {
      code = kReplacement;
    }
    if (code < 0x80) {
      add(code);
      continue;
    }
    if (code < 0x800) {
      add(0xC0 | code >> 6);
    } else {
      if (code < 0x10000) {
        add(0xE0 | code >> 12);
      } else {
        add(0xF0 | code >> 18);
        add(0x80 | (code >> 12 & 0x3F));
      }
      add(0x80 | (code >> 6 & 0x3F));
    }
    add(0x80 | (code & 0x3F));
  }
  return text;
}

void ForEachLine(std::string_view text,
                 const std::function<void(std::string_view line)>& use) {
  std::string kept;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    while (true) {
      const size_t bar = line.find('\r');
      if (bar != 0) use(WithoutControls(line.substr(0, bar), kept));
      if (bar == std::string_view::npos || bar + 1 == line.size()) break;
      line.remove_prefix(bar + 1);
    }
  }
}

std::optional<double> ParseNumber(std::string_view text) {
  text = Trimmed(text);
  if (text.find(',') == std::string_view::npos) return ParsePlainNumber(text);
  const auto plain = WithoutThousands(text);
  return plain ? ParsePlainNumber(*plain) : std::nullopt;
}

std::optional<double> ParsePlainNumber(std::string_view text) {
  text = Trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end) {
    return std::isnan(value) ? std::nan("") : value;
  }
  if (error == std::errc::result_out_of_range && rest == end) {
    // The number is too large, or too small to be told from zero.
    const bool small = text.find("e-") != std::string_view::npos ||
                       text.find("E-") != std::string_view::npos ||
                       text.find_first_of("eE") == std::string_view::npos;
    if (small) return text.starts_with('-') ? -0.0 : 0.0;
    const double infinity = std::numeric_limits<double>::infinity();
    return text.starts_with('-') ? -infinity : infinity;
  }
  return ParseSpelled(text);
}

std::optional<int64_t> ParseWhole(std::string_view text) {
  text = Trimmed(text);
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || rest != end) return std::nullopt;
  if (value > kMostWhole || value < -kMostWhole) return std::nullopt;
  return value;
}

std::string_view TakeWord(std::string_view& rest) {
  SkipBlanks(rest);
  size_t end = 0;
  while (end < rest.size() && !IsBlank(rest[end])) ++end;
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

std::vector<Word> WordsOf(std::string_view text) {
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  const auto is_capital = [](unsigned char c) { return std::isupper(c) != 0; };
  std::vector<Word> words;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool hump = inside && is_capital(c) && !is_capital(text[i - 1]);
    const bool begins = is_letter(c) && (!inside || hump);
    inside = is_letter(c);
    if (begins) words.push_back({"", i});
    if (inside) words.back().letters += static_cast<char>(std::tolower(c));
  }
  return words;
}

bool SaysEvaluation(std::string_view words) {
  constexpr std::string_view kBegins[] = {
      "eval", "valid", "test", "val:", "Eval", "Valid", "Test"};
  return BeginsAWord(kBegins, words);
}

bool IsEvaluationWord(std::string_view word) {
  constexpr std::string_view kWords[] = {
      "val",       "valid",   "validation", "validate", "validating",
      "eval",      "evals",   "evaluation", "evaluate", "evaluating",
      "evaluator", "test",    "testing",    "dev",      "heldout",
      "held-out",  "holdout", "hold-out"};
  return std::ranges::any_of(kWords, [word](std::string_view known) {
    return EqualIgnoringCase(word, known);
  });
}

bool NamesEvaluation(std::string_view name) {
  // A machine's name has other marks: "my.test", "test-3".
  constexpr std::string_view kBetween = "[](){}|:;,/_*=<>\"'";
  while (!Trimmed(name).empty()) {
    std::string_view word = TakeWord(name);
    if (IsPathOrSetting(word)) continue;
    while (!word.empty()) {
      const size_t end = std::min(word.find_first_of(kBetween), word.size());
      if (IsEvaluationWord(word.substr(0, end))) return true;
      word.remove_prefix(std::min(end + 1, word.size()));
    }
  }
  return false;
}

bool SaysTraining(std::string_view words) {
  constexpr std::string_view kBegins[] = {"train", "Train"};
  return BeginsAWord(kBegins, words);
}

std::optional<std::string_view> After(std::string_view line,
                                      std::string_view key) {
  for (size_t at = line.find(key); at != std::string_view::npos;
       at = line.find(key, at + 1)) {
    if (at == 0 || std::string_view(" \t|\"'[({,").find(line[at - 1]) !=
                       std::string_view::npos) {
      return line.substr(at + key.size());
    }
  }
  return std::nullopt;
}

std::optional<Written> LeadingNumber(std::string_view text) {
  SkipBlanks(text);
  size_t end = 0;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
          text[end] == '.' || text[end] == '+' || text[end] == '-' ||
          (text[end] == ',' && end + 1 < text.size() &&
           std::isdigit(static_cast<unsigned char>(text[end + 1])) != 0))) {
    if (++end > kMostNumberLength) return std::nullopt;
  }
  // 1.#INF and 1_0 continue with a word, not with a unit.
  if (end < text.size() && (text[end] == '#' || text[end] == '_')) {
    return std::nullopt;
  }
  std::string_view word = text.substr(0, end);
  while (!word.empty()) {
    if (const auto value = ParseNumber(word)) return Written{*value, word};
    // A list may have no blanks: 0.5,0.25.
    const size_t comma = word.find(',');
    if (comma != std::string_view::npos) {
      word = word.substr(0, comma);
      // 4,70386 has a decimal comma, and no part of it is the number.
      if (ParseWhole(word)) return std::nullopt;
      continue;
    }
    // A unit may follow without a blank: 12.5ms, 7.9s.
    const unsigned char last = static_cast<unsigned char>(word.back());
    if (std::isalpha(last) == 0 && last != '.') break;
    word.remove_suffix(1);
  }
  return std::nullopt;
}

std::string_view WithoutType(std::string_view text) {
  constexpr std::string_view kTypes[] = {"np.",    "numpy.", "tensor(",
                                         "Array(", "float(", "torch.tensor("};
  const std::string_view begin =
      text.substr(std::min(text.size(), text.find_first_not_of(" \t")));
  if (std::ranges::none_of(kTypes, [begin](std::string_view type) {
        return begin.starts_with(type);
      })) {
    return text;
  }
  constexpr size_t kLongestType = 16;
  const size_t open = begin.substr(0, kLongestType + 1).find('(');
  return open == begin.npos ? text : begin.substr(open + 1);
}

bool HasUnit(const Written& number, std::string_view text) {
  constexpr std::string_view kEnds = " \t.,;:|()[]{}'\"";
  const size_t end = static_cast<size_t>(number.text.data() +
                                         number.text.size() - text.data());
  return end < text.size() && kEnds.find(text[end]) == std::string_view::npos;
}

int64_t CountOf(const Written& number) {
  constexpr int64_t kMost = 1'000'000'000;
  std::string_view text = number.text;
  if (text.ends_with(',')) text.remove_suffix(1);
  return std::clamp(ParseWhole(text).value_or(0), int64_t{0}, kMost);
}

std::optional<Written> NumberAfter(std::string_view line,
                                   std::string_view key) {
  const auto rest = After(line, key);
  return rest ? LeadingNumber(*rest) : std::nullopt;
}

}  // namespace isoloss::foreign
