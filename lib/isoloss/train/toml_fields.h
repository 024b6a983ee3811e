// Reads and writes the keys of one TOML table by one description.
//
// A section is described once, by a function template that calls the same
// methods of a FieldReader or a FieldWriter:
//
//   template <typename Fields>
//   void Visit(Fields& fields, LogConfig& log) {
//     fields.Integer("eval_every", log.eval_every, 1, 1000);
//   }
//
// so what is read, what is known, and what is printed cannot differ.
#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "isoloss/runlog/recording.h"

namespace isoloss::train {

/// A set of real numbers; bounds belong to it unless declared open.
struct Interval {
  double low;
  double high;
  bool low_open = false;
  bool high_open = false;

  bool Contains(double value) const;
  std::string ToString() const;  ///< "(0, 1]"
};

/// A word of the file and what it means.
template <typename T>
struct Named {
  std::string_view name;
  T value;
};
/// A list of them; T is deduced from the value they name.
template <typename T>
using Names = std::type_identity_t<std::span<const Named<T>>>;

/// Knows for each value of a file whether it stands there or was overridden.
class Origin {
 public:
  explicit Origin(std::string file) : file_(std::move(file)) {}

  /// `text` is the override as given, "train.steps=5".
  void AddOverride(std::string key, std::string text);
  const std::string& file() const { return file_; }
  /// Every key of the file in full, for hints at one in another section.
  void SetKnownKeys(std::vector<std::string> keys) { known_ = std::move(keys); }
  /// " Did you mean `train.steps`?" for a key that ends like `name`, or nearly
  /// so; "" if there is none.
  std::string DidYouMeanElsewhere(std::string_view name,
                                  std::string_view dotted) const;
  /// "file:line", "--set text" or "file".
  std::string Describe(const std::string& key,
                       const toml::source_region& source) const;
  /// Number of the override that first created something below `key`.
  size_t OverrideIndex(const std::string& key) const;

 private:
  struct Override {
    std::string key;
    std::string text;
  };
  std::string file_;
  std::vector<Override> overrides_;
  std::vector<std::string> known_;
};

/// Reads typed values out of one table. A value that is absent keeps what it
/// had. Errors are ConfigErrors that start with the value's origin.
class FieldReader {
 public:
  /// `section` is "" for the top, else "train" or "arms.bf16". Keeps references
  /// to the other two.
  FieldReader(const toml::table& table, std::string section,
              const Origin& origin, const toml::source_region& source = {});

  template <typename T>
  void Integer(std::string_view key, T& value, int64_t low, int64_t high) {
    if (const auto given =
            ReadInteger(key, low, high, fmt::format("{}", value))) {
      value = static_cast<T>(*given);
    }
  }
  /// One of a list of integers.
  template <typename T>
  void IntegerOf(std::string_view key, T& value,
                 std::span<const int64_t> allowed) {
    if (const auto given =
            ReadIntegerOf(key, allowed, fmt::format("{}", value))) {
      value = static_cast<T>(*given);
    }
  }
  void Real(std::string_view key, double& value, Interval range);
  void Real(std::string_view key, std::optional<double>& value, Interval range);
  void Flag(std::string_view key, bool& value);
  void Text(std::string_view key, std::string& value);
  /// A list of strings, none empty.
  void Texts(std::string_view key, std::vector<std::string>& values);
  void Texts(std::string_view key,
             std::optional<std::vector<std::string>>& values);
  /// A list of distinct integers >= 0, not empty.
  void Seeds(std::string_view key, std::vector<uint64_t>& values);
  /// One of a list of words.
  void OneOf(std::string_view key, std::string& value,
             std::span<const std::string> words);
  template <typename T>
  void Choice(std::string_view key, T& value, Names<T> names) {
    std::vector<std::string> words;
    std::string word;
    for (const Named<T>& named : names) {
      words.emplace_back(named.name);
      if (named.value == value) word = named.name;
    }
    OneOf(key, word, words);
    for (const Named<T>& named : names) {
      if (named.name == word) value = named.value;
    }
  }
  template <typename T>
  void Choice(std::string_view key, std::optional<T>& value, Names<T> names) {
    if (!Has(key) && !value) {
      known_.emplace_back(key);
      return;
    }
    T chosen = value.value_or(names.front().value);
    Choice(key, chosen, names);
    value = chosen;
  }

  /// The table under `key`; empty if absent.
  FieldReader Table(std::string_view key);
  /// Keys of this table in the order of the file, overrides' last.
  std::vector<std::string> KeysInOrder() const;

  bool Has(std::string_view key) const { return table_.contains(key); }
  /// "<origin>: [<section>]", for messages of rules that join several keys. The
  /// origin is that of the first of `keys` that is there, else the section's.
  std::string Where(std::initializer_list<std::string_view> keys) const;
  /// Throws if `key` is absent. `remedy` is a sentence.
  void Require(std::string_view key, std::string_view remedy) const;
  /// Throws if the table holds a key that nobody asked for.
  void RejectUnknown() const;
  /// The keys that were asked for, in order.
  const std::vector<std::string>& known() const { return known_; }
  /// Throws "<origin>: `<key>` <message>".
  [[noreturn]] void Fail(std::string_view key, std::string_view message) const;

 private:
  const toml::node* Find(std::string_view key);
  std::optional<int64_t> ReadInteger(std::string_view key, int64_t low,
                                     int64_t high, const std::string& fallback);
  std::optional<int64_t> ReadIntegerOf(std::string_view key,
                                       std::span<const int64_t> allowed,
                                       const std::string& fallback);
  std::optional<double> ReadReal(std::string_view key, const Interval& range,
                                 const std::string& fallback);
  std::optional<std::vector<std::string>> ReadTexts(std::string_view key);
  /// Throws "`<key>` is <node>, but must be <rule>. ...".
  [[noreturn]] void FailRule(std::string_view key, const toml::node& node,
                             std::string_view rule,
                             std::string_view remedy) const;
  std::string Dotted(std::string_view key) const;

  const toml::table& table_;
  std::string section_;
  const Origin& origin_;
  toml::source_region source_;
  std::vector<std::string> known_;
};

/// Prints `key = value` lines that FieldReader reads back to the same values.
class FieldWriter {
 public:
  /// Begins table [name].
  void Section(std::string_view name);
  /// Leaves out `key` from now on, in every section.
  void Omit(std::string_view key) { omitted_.emplace_back(key); }

  template <typename T>
  void Integer(std::string_view key, const T& value, int64_t, int64_t) {
    Line(key, fmt::format("{}", value));
  }
  template <typename T>
  void IntegerOf(std::string_view key, const T& value,
                 std::span<const int64_t>) {
    Line(key, fmt::format("{}", value));
  }
  void Real(std::string_view key, double value, Interval);
  void Real(std::string_view key, const std::optional<double>& value, Interval);
  void Flag(std::string_view key, bool value);
  void Text(std::string_view key, const std::string& value);
  void Texts(std::string_view key, const std::vector<std::string>& values);
  void Texts(std::string_view key,
             const std::optional<std::vector<std::string>>& values);
  void Seeds(std::string_view key, const std::vector<uint64_t>& values);
  void OneOf(std::string_view key, const std::string& value,
             std::span<const std::string>) {
    Text(key, value);
  }
  template <typename T>
  void Choice(std::string_view key, const T& value, Names<T> names) {
    for (const Named<T>& named : names) {
      if (named.value == value) Text(key, std::string(named.name));
    }
  }
  template <typename T>
  void Choice(std::string_view key, const std::optional<T>& value,
              Names<T> names) {
    if (value) Choice(key, *value, names);
  }

  const std::string& text() const { return text_; }

 private:
  void Line(std::string_view key, std::string_view value);

  std::string text_;
  std::vector<std::string> omitted_;
};

/// "section.key" and value, as written, of each line of a FieldWriter's text.
using runlog::KeysOf;

/// The one of the dotted `keys` whose last part is `name`, or is nearest to it
/// (isoloss::NearestName); "" if none is near.
std::string NearestKey(std::string_view name,
                       std::span<const std::string> keys);

/// Sets a value of `root` as `text`, "section.key=value", says, and notes it in
/// `origin`.
/// Errors   ConfigError if text has another form.
void ApplyOverride(const std::string& text, toml::table& root, Origin& origin);

}  // namespace isoloss::train
