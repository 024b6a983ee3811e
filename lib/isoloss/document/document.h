// A document holds all that a command has to say, before it is text, JSON or
// markup.
//
// A document is a list of parts in the order of reading. A member is for
// programs, a line, field, heading or chart for people, and a table is for
// both. RenderText and ToJson each take the parts that are theirs, so that one
// builder makes both.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "isoloss/document/chart.h"

namespace isoloss::document {

/// A value is a truth value, a number, a text, or a list of these. It may also
/// be empty. A real number may be NaN or infinite.
class Value {
 public:
  using List = std::vector<Value>;
  // Lists of numbers may be as long as a log.
  using Held = std::variant<std::monostate, bool, int64_t, double, std::string,
                            std::vector<int64_t>, std::vector<double>, List>;

  Value() = default;
  Value(bool value) : held_(value) {}                  // NOLINT(*-explicit-*)
  Value(std::string text) : held_(std::move(text)) {}  // NOLINT(*-explicit-*)
  Value(std::string_view text)                         // NOLINT(*-explicit-*)
      : held_(std::string(text)) {}
  Value(const char* text) : held_(std::string(text)) {}  // NOLINT(*-explicit-*)
  template <std::integral T>
  Value(T value)
      : held_(static_cast<int64_t>(value)) {}  // NOLINT(*-explicit-*)
  template <std::floating_point T>
  Value(T value) : held_(static_cast<double>(value)) {}  // NOLINT(*-explicit-*)
  template <typename T>
  Value(const std::optional<T>& value) {  // NOLINT(*-explicit-*)
    if (value) *this = Value(*value);
  }
  template <typename T>
  Value(const std::vector<T>& values) {  // NOLINT(*-explicit-*)
    if constexpr (std::integral<T>) {
      held_ = std::vector<int64_t>(values.begin(), values.end());
    } else if constexpr (std::floating_point<T>) {
      held_ = std::vector<double>(values.begin(), values.end());
    } else {
      held_ = List(values.begin(), values.end());
    }
  }

  const Held& held() const { return held_; }

 private:
  Held held_;
};

/// A tone says how a text stands out, where the medium can show that.
enum class Tone { kPlain, kStrong, kQuiet, kGood, kDoubtful, kBad };

class Document;

/// A member is for programs. It holds a value, an object, or a list of objects.
/// The texts of these objects are read in its place.
struct Member {
  std::string key;
  std::variant<Value, std::vector<Document>> content;
  bool is_list = false;  ///< of several documents, or of one that is an object
};

/// A title stands out. An empty line precedes it unless it begins the document.
struct Title {
  std::string text;
};

/// A line stands on its own. With `hang` a long one is broken, and its next
/// lines begin with that number of spaces.
struct Line {
  std::string text = {};
  int indent = 0;
  std::optional<size_t> hang = {};
  std::string lead = {};  ///< before the text, in `tone`
  Tone tone = Tone::kPlain;
  std::string label = {};  ///< between them, unbroken
};

/// A field pairs a label with a text. A field without text is left out.
struct Field {
  std::string label;
  std::string text;
  Tone tone = Tone::kPlain;
};

/// A column shows, of each row, the field of its label, or else the member of
/// its key, or "-".
struct Column {
  std::string key = {};
  std::string label = {};
  int width = 0;            ///< at least; 0: as wide as its widest cell
  std::string format = {};  ///< of numbers, as std::format has it: ".6g"
  bool is_text = false;     ///< set to the left
};

/// A table is for people, and with a key also a list of objects for programs.
struct Table {
  std::string key = {};
  std::vector<Column> columns = {};
  std::vector<Document> rows = {};
  int indent = 0;
  int gap = 1;           ///< spaces between columns
  bool has_head = true;  ///< a line of the labels
};

using Part = std::variant<Member, Title, Line, Field, Table, Chart>;

class Document {
 public:
  const std::vector<Part>& parts() const { return parts_; }

  // ---- for programs: each key once ----

  void Put(std::string key, Value value) {
    parts_.push_back(Member{std::move(key), std::move(value)});
  }
  void PutObject(std::string key, Document object);
  /// Puts the object {"estimate", "lower", "upper"}.
  void PutInterval(std::string key, double estimate, double lower,
                   double upper);
  /// Puts a list that has one object for each element of `range`.
  template <typename Range, typename Describe>
  void PutEach(std::string key, const Range& range, Describe&& describe) {
    std::vector<Document> objects;
    for (const auto& element : range) {
      objects.push_back(std::invoke(describe, element));
    }
    parts_.push_back(Member{std::move(key), std::move(objects), true});
  }
  /// Adds the parts of another document after those of this one.
  void Append(Document other);

  // ---- for people ----

  void Add(Part part) { parts_.push_back(std::move(part)); }
  /// Adds an unbroken line after `indent` spaces.
  void Say(std::string text, int indent = 0) {
    Add(Line{.text = std::move(text), .indent = indent});
  }
  void AddField(std::string label, std::string text, Tone tone = Tone::kPlain) {
    Add(Field{std::move(label), std::move(text), tone});
  }

 private:
  std::vector<Part> parts_;
};

}  // namespace isoloss::document
