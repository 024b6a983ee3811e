#include "isoloss/estimators/size_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "isoloss/base/error.h"

namespace isoloss::estimators {
namespace {

struct Unit {
  char letter;
  double value;
};
constexpr std::array<Unit, 4> kUnits = {
    {{'T', 1e12}, {'B', 1e9}, {'M', 1e6}, {'K', 1e3}}};

/// Parses a number such as "14.8T".
std::optional<double> ParseCount(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || !(value > 0 && value < 1e30)) {
    return std::nullopt;
  }
  const std::string_view rest(parsed.ptr,
                              static_cast<size_t>(end - parsed.ptr));
  if (rest.empty()) return value;
  for (const Unit& unit : kUnits) {
    if (rest.size() == 1 && (rest[0] & ~0x20) == unit.letter) {
      return value * unit.value;
    }
  }
  return std::nullopt;
}

}  // namespace

Size ParseSize(std::string_view text) {
  if (text == "16B" || text == "16b") return {16e9, 50e9};
  if (text == "671B" || text == "671b") return {671e9, 14.8e12};
  const size_t at = text.find('@');
  if (at != std::string_view::npos) {
    const auto parameters = ParseCount(text.substr(0, at));
    const auto tokens = ParseCount(text.substr(at + 1));
    if (parameters && tokens) return {*parameters, *tokens};
  }
  ThrowError(ErrorKind::kConfig,
             "size '{}' was given, but a size is PARAMETERS@TOKENS, such as "
             "16B@50B or 1.3M@26M, or 16B or 671B alone.",
             text);
}

std::string NumberText(double value) {
  for (const Unit& unit : kUnits) {
    // A third of a million is 0.34M, not 340K.
    const double least = unit.letter == 'M' ? 0.1 * unit.value : unit.value;
    if (value >= least) {
      return fmt::format("{:.3g}{}", value / unit.value, unit.letter);
    }
  }
  return fmt::format("{:.3g}", value);
}

std::string SizeText(const Size& size) {
  return NumberText(size.parameters) + "@" + NumberText(size.tokens);
}

}  // namespace isoloss::estimators
