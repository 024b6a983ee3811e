#include "isoloss/config/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <cmath>
#include <sstream>

namespace isoloss::config {

bool Interval::Contains(double value) const {
  return (low_open ? value > low : value >= low) &&
         (high_open ? value < high : value <= high);
}

std::string Interval::ToString() const {
  return fmt::format("{}{}, {}{}", low_open ? '(' : '[', low, high,
                     high_open ? ')' : ']');
}

std::string IntegersText(int64_t low, int64_t high) {
  return high == kMaxInt ? fmt::format("from {}", low)
                         : fmt::format("from {} to {}", low, high);
}

std::string WithUnit(std::string text, std::string_view unit) {
  return unit.empty() ? text : fmt::format("{} ({})", text, unit);
}

std::string WordsRule(std::span<const std::string> words,
                      std::string_view none) {
  return fmt::format("{}a list of some of {}, each once",
                     none.empty() ? "" : Quoted(none) + " or ",
                     fmt::join(words, ", "));
}

std::string Quoted(std::string_view text) {
  const toml::value<std::string> value{std::string(text)};
  std::ostringstream stream;
  stream << toml::toml_formatter{value,
                                 toml::format_flags::allow_unicode_strings};
  return stream.str();
}

std::string RealText(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace isoloss::config
