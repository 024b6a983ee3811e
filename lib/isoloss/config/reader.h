// Reads the keys of one table by the description that Writer prints them by.
//
// A section is described once, by a function template that calls the same
// methods of a Reader or a Writer:
//
//   template <typename Fields>
//   void Visit(Fields& fields, LogConfig& log) {
//     fields.Integer("eval_every", log.eval_every, 1, 1000);
//   }
//
// so what is read, what is known, and what is printed cannot differ.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/config/document.h"
#include "isoloss/config/values.h"

namespace isoloss::config {

/// " Correct it or leave it out for 5."
std::string FallbackRemedy(std::string_view fallback);

/// Reads typed values out of one table. A value that is absent keeps what it
/// had. Errors are ConfigErrors that start with the value's place.
class Reader {
 public:
  /// Of the keys at the top. Keeps a reference.
  explicit Reader(const Document& document);

  /// From `low` to `high`, or at least `low` if that is kMaxInt.
  template <typename T>
  void Integer(std::string_view key, T& value, int64_t low, int64_t high,
               std::string_view unit = "") {
    ReadInteger(
        key, value, [&](int64_t v) { return v >= low && v <= high; },
        fmt::format("an integer {}", WithUnit(IntegersText(low, high), unit)));
  }
  /// One of a list of integers.
  template <typename T>
  void IntegerOf(std::string_view key, T& value,
                 std::span<const int64_t> allowed) {
    ReadInteger(
        key, value,
        [&](int64_t v) { return std::ranges::count(allowed, v) > 0; },
        fmt::format("one of {}", fmt::join(allowed, ", ")));
  }
  /// Into a double, or an optional one.
  template <typename T>
  void Real(std::string_view key, T& value, Interval range,
            std::string_view unit = "") {
    if (const auto given = ReadReal(key, value, range, unit)) value = *given;
  }
  void Flag(std::string_view key, bool& value);
  void Text(std::string_view key, std::string& value);
  void OptionalText(std::string_view key, std::optional<std::string>& value);
  /// A list of strings, none empty, into a vector or an optional one.
  template <typename T>
  void Texts(std::string_view key, T& values) {
    if (auto given = ReadTexts(key)) values = std::move(*given);
  }
  /// A list of distinct integers >= 0, not empty.
  void Numbers(std::string_view key, std::vector<uint64_t>& values);
  /// A list of some of `words`, each once, not empty. `none`, if given, is a
  /// word that stands for the empty list.
  void Words(std::string_view key, std::vector<std::string>& values,
             std::span<const std::string> words, std::string_view none = "");
  /// One of a list of words.
  void OneOf(std::string_view key, std::string& value,
             std::span<const std::string> words);
  /// What one of a list of Named stands for; into an optional one, too.
  template <typename T>
  void Choice(std::string_view key, T& value, const auto& names) {
    std::vector<std::string> words;
    std::string word;
    for (const auto& named : names) {
      words.emplace_back(named.name);
      if (value == named.value) word = named.name;
    }
    OneOf(key, word, words);
    for (const auto& named : names) {
      if (named.name == word) value = named.value;
    }
  }

  /// The table under `key`; empty if absent.
  Reader Section(std::string_view key);
  /// Every table of this one by its name, in the order of the file, those of
  /// overrides last: for a section whose keys are free names.
  std::vector<std::pair<std::string, Reader>> Sections();
  /// A list of tables, each read by its Visit and strictly.
  template <typename T>
  void Tables(std::string_view key, std::vector<T>& items) {
    for (Reader& fields : ReadTables(key)) {
      Visit(fields, items.emplace_back());
      fields.RejectUnknown();
    }
  }

  /// The same, each read by the caller.
  std::vector<Reader> TableList(std::string_view key) {
    return ReadTables(key);
  }

  bool Has(std::string_view key) const { return table_->Find(key) != nullptr; }
  /// "<place>: [<section>]", for messages of rules that join several keys. The
  /// place is that of the first of `keys` that is there, else the section's.
  std::string Where(std::initializer_list<std::string_view> keys) const;
  /// Throws if `key` is absent. `remedy` is a sentence.
  void Require(std::string_view key, std::string_view remedy) const;
  /// Throws if the table holds a key that nobody asked for.
  void RejectUnknown() const;
  /// The keys that were asked for, in order.
  const std::vector<std::string>& known() const { return known_; }
  /// Throws "<place>: `<key>` <message>".
  [[noreturn]] void Fail(std::string_view key, std::string_view message) const;

 private:
  /// `section` is "train" or "arms.bf16".
  Reader(const Document& document, const Table& table, std::string section,
         const Place& place);

  const Node* Find(std::string_view key);
  /// Null if the key is absent; throws FailRule if it is no T, or not `valid`.
  template <typename T>
  const T* Find(std::string_view key, auto&& valid, std::string_view rule,
                std::string_view remedy) {
    const Node* node = Find(key);
    if (node == nullptr) return nullptr;
    const T* value = node->template As<T>();
    if (value == nullptr || !valid(*value)) FailRule(key, *node, rule, remedy);
    return value;
  }
  template <typename T>
  void ReadInteger(std::string_view key, T& value, auto&& valid,
                   std::string_view rule) {
    if (const auto* given = Find<int64_t>(
            key, valid, rule, FallbackRemedy(fmt::to_string(value)))) {
      value = static_cast<T>(*given);
    }
  }
  std::optional<double> ReadReal(std::string_view key,
                                 const std::optional<double>& fallback,
                                 const Interval& range, std::string_view unit);
  std::optional<std::vector<std::string>> ReadTexts(std::string_view key);
  /// Each once, at least one. `remedy` is made of a wrong element, or of null.
  template <typename T>
  std::vector<T> ReadDistinct(std::string_view key, const Node& node,
                              std::string_view rule, auto&& valid,
                              auto&& remedy) const;
  std::vector<Reader> ReadTables(std::string_view key);
  Reader SectionOf(std::string_view key, const Node& node) const;
  /// Throws "`<key>` is <node>, but must be <rule>.<remedy>".
  [[noreturn]] void FailRule(std::string_view key, const Node& node,
                             std::string_view rule,
                             std::string_view remedy) const;
  std::string Dotted(std::string_view key) const;

  const Document* document_;
  const Table* table_;
  std::string section_;
  Place place_;
  std::vector<std::string> known_;
};

/// Reads what has a Visit, and nothing besides it.
template <typename T>
T ReadAll(const Document& document) {
  T result;
  Reader fields(document);
  Visit(fields, result);
  fields.RejectUnknown();
  return result;
}

}  // namespace isoloss::config
