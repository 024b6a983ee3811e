// Reads TOML from files that nobody trusts, as a tree that knows the order of
// its keys and where each stands. toml++ parses the text, but keeps keys by
// name only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace isoloss::config {

/// Our own dotted keys have at most 3 parts.
inline constexpr int kMaxKeyParts = 16;
/// A tree takes many times the memory of its text.
inline constexpr size_t kMaxTomlBytes = size_t{4} << 20;

/// A key or a value stands in the file, in an override, or in neither.
struct Place {
  uint32_t line = 0;
  uint32_t column = 0;
  int32_t override_index = -1;
};

struct Entry;
struct Node;
using List = std::vector<Node>;

/// Entries have the order of the file; keys that overrides add come last.
struct Table {
  std::vector<Entry> entries;

  /// Returns null if the key is absent.
  const Entry* Find(std::string_view key) const;
  /// Returns the entry of `key`, or adds one with an empty table.
  Entry& FindOrAdd(std::string_view key, const Place& place);
};
bool operator==(const Table& a, const Table& b);

struct Node {
  /// monostate stands for a date or time, which no key takes.
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Table>
      value;
  Place place;

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&value);
  }
};
/// Compares values only, not their places.
bool operator==(const Node& a, const Node& b);

struct Entry {
  std::string key;
  Place place;
  Node node;
};

/// Returns a value as a message shows it: long values only in part.
std::string Shown(const Node& node);

class Document {
 public:
  /// `file` is the name in messages. `remedy`, if given, ends all of them.
  /// Errors   ConfigError "FILE:LINE:COLUMN: what. Remedy." if the text is no
  ///          TOML, or has more than kMaxTomlBytes, or if a dotted key has more
  ///          than kMaxKeyParts parts. (The parser descends once for each part
  ///          and checks no depth.)
  Document(std::string_view text, std::string file,
           std::string_view remedy = "");

  /// Sets a value as `text`, "section.key=value", says. The value is TOML, or
  /// one bare word that stands for a string.
  /// Errors   ConfigError if text has another form.
  void Override(const std::string& text);

  /// Sets the full names of all keys, for hints at a key of another section.
  void SetKnownKeys(std::vector<std::string> keys) { known_ = std::move(keys); }
  const std::vector<std::string>& known_keys() const { return known_; }

  const Table& root() const { return root_; }
  /// Returns " Restore it." if that was given, else "".
  const std::string& remedy() const { return remedy_; }
  /// Returns "file:line:column", "--set text" or "file".
  std::string Describe(const Place& place) const;

 private:
  std::string file_;
  std::string remedy_;
  Table root_;
  std::vector<std::string> overrides_;
  std::vector<std::string> known_;
};

}  // namespace isoloss::config
