// Prints the keys of a table by the same description by which Reader reads
// them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/config/values.h"

namespace isoloss::config {

/// Prints `key = value` lines that Reader reads back to the same values. Keys
/// stand in the order of their description, which digests in logs rely on;
/// toml++'s own writer sorts them by name.
class Writer {
 public:
  /// Prints the keys at the top, or those of `section`, whose heading the
  /// caller prints.
  explicit Writer(std::string section = "") : section_(std::move(section)) {}

  /// Begins table [name].
  void Section(std::string_view name);

  void Integer(std::string_view key, int64_t value, auto&&...) {
    Line(key, fmt::format("{}", value));
  }
  void IntegerOf(std::string_view key, int64_t value,
                 std::span<const int64_t>) {
    Integer(key, value);
  }
  void Real(std::string_view key, const std::optional<double>& value, Interval,
            std::string_view = "");
  /// Special  There is no line if `values` is empty.
  void Reals(std::string_view key, const std::vector<double>& values,
             const Interval&);
  void Flag(std::string_view key, bool value);
  void Text(std::string_view key, std::string_view value);
  /// Special  There is no line if `values` is empty.
  void Names(std::string_view key, const std::vector<std::string>& values) {
    if (values.size() == 1) return Text(key, values.front());
    if (!values.empty()) Texts(key, values);
  }
  void Texts(std::string_view key,
             const std::optional<std::vector<std::string>>& values);
  /// Special  There is no line if `values` is empty.
  void Numbers(std::string_view key, const std::vector<uint64_t>& values);
  void Words(std::string_view key, const std::vector<std::string>& values,
             std::span<const std::string>, std::string_view none = "");
  void OneOf(std::string_view key, const std::string& value,
             std::span<const std::string>) {
    Text(key, value);
  }
  void Choice(std::string_view key, const auto& value, const auto& names) {
    for (const auto& named : names) {
      if (value == named.value) Text(key, named.name);
    }
  }
  /// Prints a table [[section.key]] for each item.
  template <typename T>
  void Tables(std::string_view key, std::vector<T> items) {
    const std::string outer = section_;
    for (T& item : items) {
      section_ = outer;
      TableHeading(key);
      Visit(*this, item);
    }
    section_ = outer;
  }

  const std::string& text() const { return text_; }

 private:
  void TableHeading(std::string_view key);
  void Line(std::string_view key, std::string_view value);

  std::string section_;
  std::string text_;
};

/// Prints all keys of `section`, which has a Visit.
template <typename T>
std::string TextOf(T section) {
  Writer fields;
  Visit(fields, section);
  return fields.text();
}

}  // namespace isoloss::config
