// Reads the keys of one table by the same description from which Writer prints
// them.
//
// A section is described once, by a function template that calls the same
// methods of a Reader or a Writer:
//
//   template <typename Fields>
//   void Visit(Fields& fields, LogConfig& log) {
//     fields.Integer("eval_every", log.eval_every, 1, 1000);
//   }
//
// So the keys that are read, known and printed cannot differ.
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

/// Returns a text such as " Correct it or leave it out for 5."
std::string FallbackRemedy(std::string_view fallback);

/// Reads typed values from one table. An absent key leaves its value as it was.
/// Errors are ConfigErrors that start with the value's place.
class Reader {
 public:
  /// Reads the keys at the top. Keeps a reference to `document`.
  explicit Reader(const Document& document);

  /// The value must be from `low` to `high`, or at least `low` if `high` is
  /// kMaxInt.
  template <typename T>
  void Integer(std::string_view key, T& value, int64_t low, int64_t high,
               std::string_view unit = "") {
    ReadInteger(
        key, value, [&](int64_t v) { return v >= low && v <= high; },
        fmt::format("an integer {}", WithUnit(IntegersText(low, high), unit)));
  }
  /// The value must be one of `allowed`.
  template <typename T>
  void IntegerOf(std::string_view key, T& value,
                 std::span<const int64_t> allowed) {
    ReadInteger(
        key, value,
        [&](int64_t v) { return std::ranges::count(allowed, v) > 0; },
        fmt::format("one of {}", fmt::join(allowed, ", ")));
  }
  /// Reads a double, or an optional double.
  template <typename T>
  void Real(std::string_view key, T& value, Interval range,
            std::string_view unit = "") {
    if (const auto given = ReadReal(key, value, range, unit)) value = *given;
  }
  /// Reads a list of numbers, which may be empty.
  void Reals(std::string_view key, std::vector<double>& values,
             const Interval& range);
  void Flag(std::string_view key, bool& value);
  void Text(std::string_view key, std::string& value);
  /// Reads a string, or a list of distinct strings that is not empty. No string
  /// may be empty.
  void Names(std::string_view key, std::vector<std::string>& values);
  /// Reads a list of strings, none of them empty, into a vector or an optional
  /// vector.
  template <typename T>
  void Texts(std::string_view key, T& values) {
    if (auto given = ReadTexts(key)) values = std::move(*given);
  }
  /// Reads a list of distinct integers >= 0 that is not empty.
  void Numbers(std::string_view key, std::vector<uint64_t>& values);
  /// Reads a list of some of `words`, each once, that is not empty. `none`, if
  /// given, is a word that stands for the empty list.
  void Words(std::string_view key, std::vector<std::string>& values,
             std::span<const std::string> words, std::string_view none = "");
  /// The value must be one of `words`.
  void OneOf(std::string_view key, std::string& value,
             std::span<const std::string> words);
  /// Reads the name of one of `names`, which are Named, and stores what it
  /// stands for, also in an optional value.
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

  /// Returns the table under `key`, or an empty one if the key is absent.
  Reader Section(std::string_view key);
  /// Returns every table of this one by its name, for a section whose keys are
  /// free names. They have the order of the file; tables of overrides come
  /// last.
  std::vector<std::pair<std::string, Reader>> Sections();
  /// Reads a list of tables, each by its Visit. Unknown keys are errors.
  template <typename T>
  void Tables(std::string_view key, std::vector<T>& items) {
    for (Reader& fields : ReadTables(key)) {
      Visit(fields, items.emplace_back());
      fields.RejectUnknown();
    }
  }

  /// Returns the readers of a list of tables; the caller reads each.
  std::vector<Reader> TableList(std::string_view key) {
    return ReadTables(key);
  }

  bool Has(std::string_view key) const { return table_->Find(key) != nullptr; }
  /// Returns "<place>: [<section>]", for messages of rules that join several
  /// keys. The place is that of the first of `keys` that is present, else the
  /// section's.
  std::string Where(std::initializer_list<std::string_view> keys) const;
  /// Throws if `key` is absent. `remedy` is a sentence.
  void Require(std::string_view key, std::string_view remedy) const;
  /// Throws if the table holds a key that nobody asked for.
  void RejectUnknown() const;
  /// Returns the keys that were asked for, in order.
  const std::vector<std::string>& known() const { return known_; }
  /// Throws "<place>: `<key>` <message>".
  [[noreturn]] void Fail(std::string_view key, std::string_view message) const;

 private:
  /// `section` is a name such as "train" or "arms.bf16".
  Reader(const Document& document, const Table& table, std::string section,
         const Place& place);

  const Node* Find(std::string_view key);
  /// Returns null if the key is absent. Throws FailRule if the value is no T,
  /// or not `valid`.
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
  /// Reads a list of at least one element, each given once. `remedy` takes the
  /// wrong element, or null if the list itself is wrong.
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

/// Reads a T, which has a Visit, and refuses all keys that Visit does not name.
template <typename T>
T ReadAll(const Document& document) {
  T result;
  Reader fields(document);
  Visit(fields, result);
  fields.RejectUnknown();
  return result;
}

}  // namespace isoloss::config
