// Pieces of the lines that training programs print.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::foreign {

std::string_view Trimmed(std::string_view text);

/// Calls use(line) for each line without its end, which is \n, \r\n or, of a
/// progress bar, \r. Control sequences (ESC [ ... letter) are taken out.
void ForEachLine(std::string_view text,
                 const std::function<void(std::string_view line)>& use);

/// A number as programs print it: 1,234.5, 1.5e-3, nan, NaN, inf, -Infinity.
/// Empty if the text is something else, or has more behind the number.
std::optional<double> ParseNumber(std::string_view text);
/// The same without separators of thousands.
std::optional<double> ParsePlainNumber(std::string_view text);

/// Whole numbers beyond it are not told apart by a double; no run has so many
/// steps.
inline constexpr int64_t kMostWhole = int64_t{1} << 53;
/// Empty also of numbers beyond kMostWhole on either side.
std::optional<int64_t> ParseWhole(std::string_view text);

/// Removes from the front of `rest`: blanks, then everything up to a blank or
/// comma. Empty if nothing is left.
std::string_view TakeWord(std::string_view& rest);

/// A run of letters, in small ones; a capital begins one: "maxSteps".
struct Word {
  std::string letters;
  size_t begin = 0;  ///< in the text
};
std::vector<Word> WordsOf(std::string_view text);

/// Whether a word says that no training is at work, as in "eval metrics after
/// step: 3".
bool SaysEvaluation(std::string_view words);
/// Whether a word says that training is at work.
bool SaysTraining(std::string_view words);

/// What follows the first `key` in `line` that stands at the line's beginning
/// or behind a blank, quote or bracket; empty if there is none.
std::optional<std::string_view> After(std::string_view line,
                                      std::string_view key);

/// The number that follows `key` and blanks, with its text.
struct Written {
  double value = 0;
  std::string_view text;
};
/// The number as a count: 0 if it is no whole one; at most a billion.
int64_t CountOf(const Written& number);

std::optional<Written> NumberAfter(std::string_view line, std::string_view key);

/// The number at the beginning of `text`; what stands behind it is left alone.
std::optional<Written> LeadingNumber(std::string_view text);

/// Whether more of a word stands in `text` right after its `number`: 12.5ms,
/// 1.03k, 1.03/nan. A loss has no unit, so such a word is none.
bool HasUnit(const Written& number, std::string_view text);

}  // namespace isoloss::foreign
