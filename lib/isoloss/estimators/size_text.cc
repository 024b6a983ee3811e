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

/// These published models send a token to few of their experts.
struct PublishedModel {
  double parameters;
  double active_parameters;
};
constexpr std::array<PublishedModel, 2> kPublishedModels = {
    {{16e9, 2.4e9},    // DeepSeek-V2-Lite, arXiv 2405.04434
     {671e9, 37e9}}};  // DeepSeek-V3, arXiv 2412.19437

std::optional<double> PublishedActive(double parameters) {
  for (const PublishedModel& model : kPublishedModels) {
    if (model.parameters == parameters) return model.active_parameters;
  }
  return std::nullopt;
}

std::optional<Size> ParseAll(std::string_view text) {
  const size_t at = text.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view model = text.substr(0, at);
  const size_t dash = model.find("-A");
  const auto parameters = ParseCount(model.substr(0, dash));
  const auto tokens = ParseCount(text.substr(at + 1));
  if (!parameters || !tokens) return std::nullopt;
  Size size{*parameters, *tokens, PublishedActive(*parameters)};
  if (dash == std::string_view::npos) return size;
  size.active_parameters = ParseCount(model.substr(dash + 2));
  if (!size.active_parameters || *size.active_parameters > *parameters) {
    return std::nullopt;
  }
  return size;
}

}  // namespace

Size ParseSize(std::string_view text) {
  if (text == "16B" || text == "16b") return *ParseAll("16B@50B");
  if (text == "671B" || text == "671b") return *ParseAll("671B@14.8T");
  if (const std::optional<Size> size = ParseAll(text)) return *size;
  ThrowError(ErrorKind::kConfig,
             "size '{}' was given, but a size is PARAMETERS@TOKENS, such as "
             "16B@50B or 1.3M@26M, PARAMETERS-AACTIVE@TOKENS, such as "
             "30B-A3B@36T, or 16B or 671B alone.",
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
  const bool known = size.active_parameters == PublishedActive(size.parameters);
  return NumberText(size.parameters) +
         (known ? "" : "-A" + NumberText(size.ActiveParameters())) + "@" +
         NumberText(size.tokens);
}

}  // namespace isoloss::estimators
