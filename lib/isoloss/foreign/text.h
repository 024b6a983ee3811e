// Splits the lines that training programs print into words and numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::foreign {

std::string SmallLetters(std::string_view text);

std::string_view Trimmed(std::string_view text);

/// Returns UTF-16 that begins with a byte order mark as UTF-8. Half of a pair
/// becomes U+FFFD.
std::string Utf8OfUtf16(std::string_view bytes);

/// Calls use(line) for each line without its end, which is \n, \r\n or the \r
/// of a progress bar. Control sequences (ESC [ ... letter) are taken out.
void ForEachLine(std::string_view text,
                 const std::function<void(std::string_view line)>& use);

/// Reads a number as programs print it: 1,234.5, 1.5e-3, nan, NaN, inf,
/// -Infinity. Empty if the text is something else, or goes on after the number.
std::optional<double> ParseNumber(std::string_view text);
/// Reads a number as ParseNumber does, but without separators of thousands.
std::optional<double> ParsePlainNumber(std::string_view text);

/// A double can't hold all larger whole numbers; no run has as many steps.
inline constexpr int64_t kMostWhole = int64_t{1} << 53;
/// Reads a whole number; empty also beyond kMostWhole on either side.
std::optional<int64_t> ParseWhole(std::string_view text);

bool IsBlank(char c);
/// Removes blanks from the front of `rest`.
void SkipBlanks(std::string_view& rest);

/// Removes blanks from the front of `rest`, then a word: everything up to a
/// blank or comma. Returns the word; empty if nothing is left.
std::string_view TakeWord(std::string_view& rest);

/// A word is a run of letters, made small. A capital begins a word: "maxSteps".
struct Word {
  std::string letters;
  size_t begin = 0;  ///< in the text
};
std::vector<Word> WordsOf(std::string_view text);

/// Returns whether a word means an evaluation: "eval metrics after step: 3".
bool SaysEvaluation(std::string_view words);
/// Returns whether the word, in letters of any size, is "val", "dev", "test" or
/// another word of an evaluation.
bool IsEvaluationWord(std::string_view word);
/// Returns whether a part of a name is a word of an evaluation: "val_loss",
/// "Test set", "Iter(val)". A path or the name of a run ("run=test") is none.
bool NamesEvaluation(std::string_view name);
/// Returns whether a word says that training is at work.
bool SaysTraining(std::string_view words);

/// Returns what follows the first `key` in `line` that stands at the line's
/// beginning or after a blank, quote or bracket; empty if there is none.
std::optional<std::string_view> After(std::string_view line,
                                      std::string_view key);

/// A number comes with its text.
struct Written {
  double value = 0;
  std::string_view text;
};
/// Returns the number as a count: 0 if it is no whole one; at most a billion.
int64_t CountOf(const Written& number);

std::optional<Written> NumberAfter(std::string_view line, std::string_view key);

/// Reads the number at the beginning of `text` and ignores the rest.
std::optional<Written> LeadingNumber(std::string_view text);

/// Removes the name of a type around a number: "np.float64(1.5)" and
/// "tensor(1.5, ...)" become "1.5)" and "1.5, ...)".
std::string_view WithoutType(std::string_view text);

/// Returns whether more of a word stands in `text` right after its `number`:
/// 12.5ms, 1.03k, 1.03/nan. A loss has no unit, so such a word is no loss.
bool HasUnit(const Written& number, std::string_view text);

}  // namespace isoloss::foreign
