#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "isoloss/base/nearest_name.h"

namespace isoloss::cli {
namespace {

/// All of `text` as a number; empty if it is none or too large for T.
template <typename T>
std::optional<T> Parsed(const std::string& text) {
  T value = {};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// Refuses what `holds` does not hold of, by naming `rule`. The option's name
/// comes before the message (usage.cc).
template <typename T>
CLI::Validator Range(T low, T high, const std::string& kind) {
  const std::string bounds = fmt::format("{} to {}", low, high);
  return CLI::Validator(
      [low, high, bounds, kind](const std::string& text) -> std::string {
        const std::optional<T> value = Parsed<T>(text);
        // NaN is in no range.
        if (value && *value >= low && *value <= high) return "";
        return fmt::format("is {}, but must be {} from {}", ShownValue(text),
                           kind, bounds);
      },
      bounds);
}

}  // namespace

std::string ShownValue(const std::string& value) {
  constexpr size_t kMost = 60;
  if (value.empty()) return "``";
  return value.size() <= kMost ? value : value.substr(0, kMost - 3) + "...";
}

CLI::Validator IntegerIn(int64_t low, int64_t high) {
  return Range(low, high, "an integer");
}

CLI::Validator NumberIn(double low, double high) {
  return Range(low, high, "a number");
}

CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string choices = fmt::format("{}", fmt::join(words, "|"));
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) -> std::string {
        if (std::ranges::count(words, text) != 0) return "";
        return fmt::format("is {}, but must be one of {}.{}", ShownValue(text),
                           fmt::join(words, ", "), DidYouMean(text, words));
      },
      choices);
}

}  // namespace isoloss::cli
