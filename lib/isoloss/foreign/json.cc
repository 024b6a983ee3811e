#include "isoloss/foreign/json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// Copies `text`, with quotes around the words that JSON does not know.
std::string QuoteNonFinite(std::string_view text) {
  constexpr std::string_view kWords[] = {"NaN", "-Infinity", "Infinity"};
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
      for (const std::string_view known : kWords) {
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

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  bool too_deep = false;
  const auto keep = [&too_deep](int depth, nlohmann::json::parse_event_t,
                                nlohmann::json&) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return !too_deep;
  };
  nlohmann::json json =
      nlohmann::json::parse(QuoteNonFinite(text), keep, false);
  if (too_deep) return nlohmann::json(nlohmann::json::value_t::discarded);
  return json;
}

std::optional<double> NumberOf(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto number = ParseNumber(value.get_ref<const std::string&>());
  if (!number || std::isfinite(*number)) return std::nullopt;
  return number;
}

std::optional<int64_t> WholeOf(const nlohmann::json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kMost = 9007199254740992;  // 2^53
  if (number != std::floor(number) || std::abs(number) > kMost) {
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
