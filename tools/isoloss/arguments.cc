#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <type_traits>
#include <utility>

#include "isoloss/base/nearest_name.h"

namespace isoloss::cli {
namespace {

/// Returns all of `text` as a number, or nothing if `text` is no number or too
/// large for T.
template <typename T>
std::optional<T> Parsed(const std::string& text) {
  T value = {};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// Refuses numbers outside of `low` to `high`. The option's name comes before
/// the message (usage.cc).
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

/// An empty path would pass for an option that was not given.
const CLI::Validator& NamesAFile() {
  static const CLI::Validator validator(
      [](const std::string& text) -> std::string {
        return text.empty() ? "is empty, but must name a file or folder" : "";
      },
      "");
  return validator;
}

template <typename T>
constexpr bool kIsPath = std::is_same_v<T, std::filesystem::path> ||
                         std::is_same_v<T, std::vector<std::filesystem::path>>;

}  // namespace

std::string ShownValue(const std::string& value) {
  constexpr size_t kMost = 60;
  if (value.empty()) return "``";
  return value.size() <= kMost ? value : value.substr(0, kMost - 3) + "...";
}

const Option& Option::Required() const {
  option_.required();
  return *this;
}

const Option& Option::Needs(const std::string& other) const {
  option_.needs(other);
  return *this;
}

const Option& Option::Excludes(const std::string& other) const {
  option_.excludes(other);
  return *this;
}

const Option& Option::Waives(const Option& required) const {
  option_.each([other = &required.option_](const std::string& /*value*/) {
    other->required(false);
  });
  return *this;
}

const Option& Option::Count(int values) const {
  option_.expected(values);
  return *this;
}

const Option& Option::Repeatable() const {
  option_.allow_extra_args(false);
  return *this;
}

const Option& Option::SplitAtCommas() const {
  option_.delimiter(',');
  return *this;
}

const Option& Option::IntegerIn(int64_t low, int64_t high) const {
  option_.check(Range(low, high, "an integer"));
  return *this;
}

const Option& Option::NumberIn(double low, double high) const {
  option_.check(Range(low, high, "a number"));
  return *this;
}

const Option& Option::OneOf(std::vector<std::string> words) const {
  const std::string choices = fmt::format("{}", fmt::join(words, "|"));
  option_.check(CLI::Validator(
      [words = std::move(words)](const std::string& text) -> std::string {
        if (std::ranges::count(words, text) != 0) return "";
        return fmt::format("is {}, but must be one of {}.{}", ShownValue(text),
                           fmt::join(words, ", "), DidYouMean(text, words));
      },
      choices));
  return *this;
}

const Option& Option::TypeName(const std::string& name) const {
  option_.type_name(name);
  return *this;
}

const Option& Option::Hidden() const {
  option_.group("");
  return *this;
}

const Option& Option::ShowDefault() const {
  option_.capture_default_str();
  return *this;
}

template <typename T>
Option AddOption(CLI::App& app, const std::string& name, T& value,
                 const std::string& help) {
  CLI::Option* option = app.add_option(name, value, help);
  if constexpr (kIsPath<T>) option->check(NamesAFile());
  return Option(*option);
}

// Instantiates AddOption for the types of values that commands take.
using Text = const std::string&;
using Path = std::filesystem::path;
template Option AddOption(CLI::App&, Text, int&, Text);
template Option AddOption(CLI::App&, Text, int64_t&, Text);
template Option AddOption(CLI::App&, Text, uint64_t&, Text);
template Option AddOption(CLI::App&, Text, double&, Text);
template Option AddOption(CLI::App&, Text, std::optional<int64_t>&, Text);
template Option AddOption(CLI::App&, Text, std::optional<uint64_t>&, Text);
template Option AddOption(CLI::App&, Text, std::optional<double>&, Text);
template Option AddOption(CLI::App&, Text, std::string&, Text);
template Option AddOption(CLI::App&, Text, Path&, Text);
template Option AddOption(CLI::App&, Text, std::vector<int64_t>&, Text);
template Option AddOption(CLI::App&, Text, std::vector<double>&, Text);
template Option AddOption(CLI::App&, Text, std::vector<uint64_t>&, Text);
template Option AddOption(CLI::App&, Text, std::vector<std::string>&, Text);
template Option AddOption(CLI::App&, Text, std::vector<Path>&, Text);

Option AddFlag(CLI::App& app, const std::string& name, bool& value,
               const std::string& help) {
  return Option(*app.add_flag(name, value, help));
}

void Describe(CLI::App& app, const std::string& text) { app.description(text); }

}  // namespace isoloss::cli
