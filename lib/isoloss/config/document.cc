#include "isoloss/config/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <type_traits>

#include "isoloss/base/error.h"
#include "isoloss/config/values.h"

namespace isoloss::config {
namespace {

/// Counts the dots of keys. Passes over strings and comments by TOML's own
/// rules, up to the first error, at which the parser ends.
class KeyScanner {
 public:
  explicit KeyScanner(std::string_view text) : text_(text) {}

  /// Returns the line of the first key with more than kMaxKeyParts parts; 0 if
  /// there is none.
  toml::source_index DeepLine() {
    int parts = 1;
    while (place_ < text_.size()) {
      const char c = text_[place_];
      if (c == '#') {
        place_ = std::min(text_.find('\n', place_), text_.size());
      } else if (c == '"' || c == '\'') {
        SkipString(c);
      } else {
        if (c == '.') ++parts;
        if (std::string_view("\n=[]{},").find(c) != std::string_view::npos) {
          parts = 1;
        }
        if (c == '\n') ++line_;
        if (parts > kMaxKeyParts) return line_;
        ++place_;
      }
    }
    return 0;
  }

 private:
  bool IsAt(std::string_view what) const {
    return text_.substr(place_).starts_with(what);
  }

  void SkipString(char quote) {
    const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
    const bool has_lines = IsAt(three);
    place_ += has_lines ? three.size() : 1;
    while (place_ < text_.size()) {
      const char c = text_[place_];
      if (has_lines && IsAt(three)) {
        place_ += three.size();
        // The string's own text may end with up to two quotes more.
        for (int i = 0; i < 2 && IsAt({&quote, 1}); ++i) ++place_;
        return;
      }
      if (!has_lines && c == '\n') return;  // an error
      ++place_;
      if (!has_lines && c == quote) return;
      if (c == '\n') ++line_;
      if (c == '\\' && quote == '"' && place_ < text_.size() &&
          text_[place_] != '\n') {
        ++place_;
      }
    }
  }

  std::string_view text_;
  size_t place_ = 0;
  toml::source_index line_ = 1;
};

toml::table Parse(std::string_view text, std::string_view file,
                  std::string_view remedy) {
  const auto fail = [&](std::string_view what,
                        const toml::source_position& place) {
    ThrowError(ErrorKind::kConfig, "{}:{}:{}: {}.{}", file, place.line,
               place.column, what, remedy);
  };
  if (text.size() > kMaxTomlBytes) {
    fail(
        "The text has more than 4 MiB, but that of a TOML file has at most 4 "
        "MiB",
        {1, 1});
  }
  const toml::source_index deep = KeyScanner(text).DeepLine();
  if (deep > 0) fail("A key has more than 16 parts between dots", {deep, 1});
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    fail(error.description(), error.source().begin);
  }
  return {};
}

/// Makes our tree from that of toml++, whose tables are sorted by name.
class TreeMaker {
 public:
  /// `override_index` is -1 for the file.
  explicit TreeMaker(int32_t override_index)
      : override_index_(override_index) {}

  Table MakeTable(const toml::table& table) const {
    std::vector<std::pair<toml::source_position, Entry>> placed;
    for (const auto& [key, node] : table) {
      const toml::source_region& source = key.source();
      placed.push_back(
          {source.begin, {std::string(key.str()), At(source), Make(node)}});
    }
    std::stable_sort(
        placed.begin(), placed.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    Table result;
    for (auto& [place, entry] : placed) {
      result.entries.push_back(std::move(entry));
    }
    return result;
  }

 private:
  Place At(const toml::source_region& source) const {
    if (override_index_ >= 0) return {.override_index = override_index_};
    return {source.begin.line, source.begin.column};
  }

  Node Make(const toml::node& node) const {
    Node result{{}, At(node.source())};
    if (const toml::table* table = node.as_table()) {
      result.value = MakeTable(*table);
    } else if (const toml::array* list = node.as_array()) {
      List elements;
      for (const toml::node& element : *list) {
        elements.push_back(Make(element));
      }
      result.value = std::move(elements);
    } else if (const auto* text = node.as_string()) {
      result.value = text->get();
    } else if (const auto* whole = node.as_integer()) {
      result.value = whole->get();
    } else if (const auto* real = node.as_floating_point()) {
      result.value = real->get();
    } else if (const auto* flag = node.as_boolean()) {
      result.value = flag->get();
    }
    return result;
  }

  int32_t override_index_;
};

/// Returns the right-hand side of an override, or nothing if the text is
/// neither a TOML value on one line nor a bare word.
std::optional<Node> ParseValue(std::string_view value, int32_t override_index) {
  if (value.find_first_of("\r\n") != std::string_view::npos) return {};
  try {
    Table table =
        TreeMaker(override_index)
            .MakeTable(Parse(fmt::format("value = {}", value), "--set", ""));
    return std::move(table.entries.front().node);
  } catch (const Error&) {
    const bool bare_word =
        !value.empty() &&
        value.find_first_of(" \t\"'[]{}=,#") == std::string_view::npos;
    if (!bare_word) return {};
    return Node{std::string(value), {.override_index = override_index}};
  }
}

/// Says how to correct a value that is neither TOML nor a bare word.
std::string ValueRemedy(const std::string& key, const std::string& value) {
  if (ParseValue(fmt::format("[{}]", value), 0)) {
    return fmt::format("A list stands in brackets: --set '{}=[{}]'.", key,
                       value);
  }
  return fmt::format(
      "Put strings between quotes and quote the whole for the shell: --set "
      "'{}=\"my text\"'.",
      key);
}

/// Shows the first elements of a list; tables and lists among them appear by
/// kind only.
std::string ShownList(const List& list) {
  constexpr size_t kMost = 8;
  std::vector<std::string> elements;
  for (const Node& element : list) {
    if (elements.size() == kMost) {
      elements.push_back("...");
      break;
    }
    elements.push_back(element.As<List>() ? "a list" : Shown(element));
  }
  return fmt::format("[{}]", fmt::join(elements, ", "));
}

}  // namespace

bool operator==(const Table& a, const Table& b) {
  return std::ranges::equal(a.entries, b.entries,
                            [](const Entry& x, const Entry& y) {
                              return x.key == y.key && x.node == y.node;
                            });
}

bool operator==(const Node& a, const Node& b) { return a.value == b.value; }

const Entry* Table::Find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &Entry::key);
  return found == entries.end() ? nullptr : &*found;
}

Entry& Table::FindOrAdd(std::string_view key, const Place& place) {
  const auto found = std::ranges::find(entries, key, &Entry::key);
  if (found != entries.end()) return *found;
  entries.push_back({std::string(key), place, {Table(), place}});
  return entries.back();
}

std::string Shown(const Node& node) {
  if (const auto* text = node.As<std::string>()) {
    constexpr size_t kMost = 60;
    return text->size() <= kMost ? Quoted(*text)
                                 : Quoted(text->substr(0, kMost)) + "...";
  }
  if (const auto* whole = node.As<int64_t>()) return fmt::to_string(*whole);
  if (const auto* real = node.As<double>()) return RealText(*real);
  if (const auto* flag = node.As<bool>()) return *flag ? "true" : "false";
  if (const auto* list = node.As<List>()) return ShownList(*list);
  return node.As<Table>() ? "a table" : "a date or time";
}

Document::Document(std::string_view text, std::string file,
                   std::string_view remedy)
    : file_(std::move(file)),
      remedy_(remedy.empty() ? "" : fmt::format(" {}", remedy)),
      root_(TreeMaker(-1).MakeTable(Parse(
          text, file_, remedy.empty() ? " Correct the TOML." : remedy_))) {}

std::string Document::Describe(const Place& place) const {
  if (place.override_index >= 0) {
    return "--set " + overrides_[place.override_index];
  }
  if (place.line == 0) return file_;
  return fmt::format("{}:{}:{}", file_, place.line, place.column);
}

void Document::Override(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const bool well_formed = equals != std::string::npos && !key.empty() &&
                           key.front() != '.' && key.back() != '.' &&
                           key.find("..") == std::string::npos &&
                           std::ranges::count(key, '.') < kMaxKeyParts;
  if (!well_formed) {
    ThrowError(ErrorKind::kConfig,
               "--set {}: an override must have the form section.key=value. "
               "For example --set train.steps=100.",
               text);
  }
  const Place place{.override_index = static_cast<int32_t>(overrides_.size())};
  const std::string written = text.substr(equals + 1);
  std::optional<Node> value = ParseValue(written, place.override_index);
  if (!value) {
    ThrowError(ErrorKind::kConfig,
               "--set {}: the value is {}, but must be TOML or one bare word. "
               "{}",
               Quoted(text), Quoted(written), ValueRemedy(key, written));
  }
  overrides_.push_back(text);

  Table* table = &root_;
  size_t begin = 0;
  for (size_t dot = key.find('.'); dot != std::string::npos;
       begin = dot + 1, dot = key.find('.', begin)) {
    Node& node = table->FindOrAdd(key.substr(begin, dot - begin), place).node;
    table = std::get_if<Table>(&node.value);
    if (table == nullptr) {
      ThrowError(ErrorKind::kConfig,
                 "--set {}: `{}` is {}, but only a table has keys. Override "
                 "the key itself.",
                 text, key.substr(0, dot), Shown(node));
    }
  }
  table->FindOrAdd(key.substr(begin), place) = {key.substr(begin), place,
                                                std::move(*value)};
}

}  // namespace isoloss::config
