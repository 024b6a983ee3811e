#include "isoloss/train/toml_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <tuple>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/toml_text.h"

namespace isoloss::train {
namespace {

/// A TOML basic string.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

/// The shortest text that reads back to the same double and is a TOML float:
/// 1.0, 1e-08, inf, nan.
std::string RealText(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string Shown(const toml::node& node);

/// The first elements of a list; tables and lists in it by kind.
std::string ShownList(const toml::array& list) {
  constexpr size_t kMost = 8;
  std::vector<std::string> elements;
  for (const toml::node& element : list) {
    if (elements.size() == kMost) {
      elements.push_back("...");
      break;
    }
    elements.push_back(element.is_array() ? "a list" : Shown(element));
  }
  return fmt::format("[{}]", fmt::join(elements, ", "));
}

/// A value as a message shows it; long ones only in part.
std::string Shown(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    constexpr size_t kMost = 60;
    const std::string& all = text->get();
    return all.size() <= kMost ? Quoted(all)
                               : Quoted(all.substr(0, kMost)) + "...";
  }
  if (const auto* value = node.as_integer()) {
    return fmt::format("{}", value->get());
  }
  if (const auto* value = node.as_floating_point()) {
    return RealText(value->get());
  }
  if (const auto* value = node.as_boolean()) {
    return value->get() ? "true" : "false";
  }
  if (const auto* list = node.as_array()) return ShownList(*list);
  return node.is_table() ? "a table" : "a date or time";
}

std::string FallbackRemedy(const std::string& fallback) {
  if (fallback.empty()) return "Correct it.";
  return fmt::format("Correct it or leave it out for {}.", fallback);
}

bool IsBelow(std::string_view key, std::string_view table) {
  return key.size() > table.size() && key.starts_with(table) &&
         key[table.size()] == '.';
}

/// Parses the right-hand side of an override.
/// Returns a table with the key `value`; null if the text is neither a TOML
/// value on one line nor a bare word.
std::unique_ptr<toml::table> ParseOverrideValue(std::string_view value) {
  if (value.find_first_of("\r\n") != std::string_view::npos) return nullptr;
  auto holder = std::make_unique<toml::table>();
  try {
    *holder = ParseToml(fmt::format("value = {}", value), "--set");
    return holder;
  } catch (const Error&) {
    const bool bare_word =
        !value.empty() &&
        value.find_first_of(" \t\"'[]{}=,#") == std::string_view::npos;
    if (bare_word) {
      holder->clear();
      holder->insert("value", std::string(value));
      return holder;
    }
  }
  return nullptr;
}

}  // namespace

bool Interval::Contains(double value) const {
  return std::isfinite(value) && (low_open ? value > low : value >= low) &&
         (high_open ? value < high : value <= high);
}

std::string Interval::ToString() const {
  return fmt::format("{}{}, {}{}", low_open ? '(' : '[', low, high,
                     high_open ? ')' : ']');
}

void Origin::AddOverride(std::string key, std::string text) {
  overrides_.push_back({std::move(key), std::move(text)});
}

std::string Origin::Describe(const std::string& key,
                             const toml::source_region& source) const {
  for (auto it = overrides_.rbegin(); it != overrides_.rend(); ++it) {
    if (it->key == key || IsBelow(key, it->key)) return "--set " + it->text;
  }
  if (source.begin.line > 0) {
    return fmt::format("{}:{}", file_, source.begin.line);
  }
  const size_t index = OverrideIndex(key);
  return index < overrides_.size() ? "--set " + overrides_[index].text : file_;
}

std::string Origin::DidYouMeanElsewhere(std::string_view name,
                                        std::string_view dotted) const {
  const std::string key = NearestKey(name, known_);
  if (key == dotted) return " It goes with another value of a key beside it.";
  return key.empty() ? "" : fmt::format(" Did you mean `{}`?", key);
}

size_t Origin::OverrideIndex(const std::string& key) const {
  const auto found = std::find_if(
      overrides_.begin(), overrides_.end(),
      [&](const Override& o) { return o.key == key || IsBelow(o.key, key); });
  return found - overrides_.begin();
}

FieldReader::FieldReader(const toml::table& table, std::string section,
                         const Origin& origin,
                         const toml::source_region& source)
    : table_(table),
      section_(std::move(section)),
      origin_(origin),
      source_(source) {}

std::string FieldReader::Dotted(std::string_view key) const {
  return section_.empty() ? std::string(key)
                          : fmt::format("{}.{}", section_, key);
}

const toml::node* FieldReader::Find(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

void FieldReader::Fail(std::string_view key, std::string_view message) const {
  const std::string dotted = Dotted(key);
  const toml::node* node = table_.get(key);
  ThrowError(ErrorKind::kConfig, "{}: `{}` {}",
             origin_.Describe(dotted, node ? node->source() : source_), dotted,
             message);
}

std::string FieldReader::Where(
    std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) continue;
    return fmt::format("{}: [{}]",
                       origin_.Describe(Dotted(key), node->source()), section_);
  }
  return fmt::format("{}: [{}]", origin_.Describe(section_, source_), section_);
}

void FieldReader::FailRule(std::string_view key, const toml::node& node,
                           std::string_view rule,
                           std::string_view remedy) const {
  Fail(key,
       fmt::format("is {}, but must be {}. {}", Shown(node), rule, remedy));
}

void FieldReader::Require(std::string_view key, std::string_view remedy) const {
  if (Has(key)) return;
  const std::string wanted(key);
  std::string misspelt;
  for (const auto& [given, node] : table_) {
    if (!NearestName(given.str(), std::span(&wanted, 1)).empty()) {
      misspelt = fmt::format(" Is `{}` a misspelling of it?", given.str());
    }
  }
  Fail(key, fmt::format("is missing. {}{}", remedy, misspelt));
}

void FieldReader::RejectUnknown() const {
  for (const std::string& key : KeysInOrder()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string dotted = Dotted(key);
    // A key by its very name, in another section, before one that looks alike.
    const std::string elsewhere = origin_.DidYouMeanElsewhere(key, dotted);
    const std::string here = DidYouMean(key, known_);
    ThrowError(ErrorKind::kConfig,
               "{}: unknown key `{}`. Known keys{}{}: {}.{}",
               origin_.Describe(dotted, table_.find(key)->first.source()),
               dotted, section_.empty() ? "" : " of ", section_,
               fmt::join(known_, ", "), here.empty() ? elsewhere : here);
  }
}

std::vector<std::string> FieldReader::KeysInOrder() const {
  // toml++ keeps tables sorted by name; positions tell the order of the file.
  using Place =
      std::tuple<bool, toml::source_index, toml::source_index, size_t>;
  std::vector<std::pair<Place, std::string>> keys;
  for (const auto& [key, node] : table_) {
    const auto position = key.source().begin;
    keys.push_back({{position.line == 0, position.line, position.column,
                     origin_.OverrideIndex(Dotted(key.str()))},
                    std::string(key.str())});
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::string> ordered;
  for (auto& [place, key] : keys) ordered.push_back(std::move(key));
  return ordered;
}

FieldReader FieldReader::Table(std::string_view key) {
  static const toml::table kEmpty;
  const toml::node* node = Find(key);
  if (node == nullptr) return {kEmpty, Dotted(key), origin_};
  if (!node->is_table()) {
    FailRule(key, *node, "a table", fmt::format("Write [{}].", Dotted(key)));
  }
  return {*node->as_table(), Dotted(key), origin_, node->source()};
}

std::optional<int64_t> FieldReader::ReadInteger(std::string_view key,
                                                int64_t low, int64_t high,
                                                const std::string& fallback) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const auto* value = node->as_integer();
  if (value == nullptr || value->get() < low || value->get() > high) {
    FailRule(key, *node, fmt::format("an integer from {} to {}", low, high),
             FallbackRemedy(fallback));
  }
  return value->get();
}

std::optional<int64_t> FieldReader::ReadIntegerOf(
    std::string_view key, std::span<const int64_t> allowed,
    const std::string& fallback) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const auto* value = node->as_integer();
  if (value == nullptr || std::find(allowed.begin(), allowed.end(),
                                    value->get()) == allowed.end()) {
    FailRule(key, *node, fmt::format("one of {}", fmt::join(allowed, ", ")),
             FallbackRemedy(fallback));
  }
  return value->get();
}

std::optional<double> FieldReader::ReadReal(std::string_view key,
                                            const Interval& range,
                                            const std::string& fallback) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  if (!value || !range.Contains(*value)) {
    FailRule(key, *node, "a number in " + range.ToString(),
             FallbackRemedy(fallback));
  }
  return value;
}

void FieldReader::Real(std::string_view key, double& value, Interval range) {
  value = ReadReal(key, range, RealText(value)).value_or(value);
}

void FieldReader::Real(std::string_view key, std::optional<double>& value,
                       Interval range) {
  const std::string fallback = value ? RealText(*value) : "";
  if (const auto given = ReadReal(key, range, fallback)) value = given;
}

void FieldReader::Flag(std::string_view key, bool& value) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (!node->is_boolean()) {
    FailRule(key, *node, "true or false",
             FallbackRemedy(value ? "true" : "false"));
  }
  value = node->as_boolean()->get();
}

void FieldReader::Text(std::string_view key, std::string& value) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (!node->is_string()) {
    FailRule(key, *node, "a string", "Put it between quotes.");
  }
  value = node->as_string()->get();
}

void FieldReader::OneOf(std::string_view key, std::string& value,
                        std::span<const std::string> words) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->as_string();
  if (text == nullptr ||
      std::find(words.begin(), words.end(), text->get()) == words.end()) {
    Fail(key, fmt::format("is {}, but must be one of {}.{}", Shown(*node),
                          fmt::join(words, ", "),
                          text ? DidYouMean(text->get(), words) : ""));
  }
  value = text->get();
}

std::optional<std::vector<std::string>> FieldReader::ReadTexts(
    std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  constexpr std::string_view kRule = "a list of strings, none empty";
  constexpr std::string_view kRemedy = "Write [\"first\", \"second\"].";
  const auto* list = node->as_array();
  if (list == nullptr) FailRule(key, *node, kRule, kRemedy);
  std::vector<std::string> values;
  for (const toml::node& element : *list) {
    const auto* text = element.as_string();
    if (text == nullptr || text->get().empty()) {
      Fail(key, fmt::format("holds {}, but must be {}. {}", Shown(element),
                            kRule, kRemedy));
    }
    values.push_back(text->get());
  }
  return values;
}

void FieldReader::Texts(std::string_view key,
                        std::vector<std::string>& values) {
  if (auto given = ReadTexts(key)) values = std::move(*given);
}

void FieldReader::Texts(std::string_view key,
                        std::optional<std::vector<std::string>>& values) {
  if (auto given = ReadTexts(key)) values = std::move(given);
}

void FieldReader::Seeds(std::string_view key, std::vector<uint64_t>& values) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  constexpr std::string_view kRule = "a list of distinct integers from 0";
  constexpr std::string_view kRemedy = "Write for example [1, 2, 3, 4].";
  const auto* list = node->as_array();
  if (list == nullptr || list->empty()) {
    Fail(key, list ? fmt::format("holds no number, but must be {}, at least "
                                 "one. {}",
                                 kRule, kRemedy)
                   : fmt::format("is {}, but must be {}. {}", Shown(*node),
                                 kRule, kRemedy));
  }
  values.clear();
  for (const toml::node& element : *list) {
    const auto* number = element.as_integer();
    const bool valid =
        number != nullptr && number->get() >= 0 &&
        std::find(values.begin(), values.end(),
                  static_cast<uint64_t>(number->get())) == values.end();
    if (!valid) {
      const bool repeated = number != nullptr && number->get() >= 0;
      Fail(key, fmt::format("holds {}{}, but must be {}. {}", Shown(element),
                            repeated ? " twice" : "", kRule, kRemedy));
    }
    values.push_back(static_cast<uint64_t>(number->get()));
  }
}

void FieldWriter::Section(std::string_view name) {
  text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name);
}

void FieldWriter::Line(std::string_view key, std::string_view value) {
  const bool omitted =
      std::find(omitted_.begin(), omitted_.end(), key) != omitted_.end();
  if (!omitted) text_ += fmt::format("{} = {}\n", key, value);
}

void FieldWriter::Real(std::string_view key, double value, Interval) {
  Line(key, RealText(value));
}

void FieldWriter::Real(std::string_view key, const std::optional<double>& value,
                       Interval) {
  if (value) Line(key, RealText(*value));
}

void FieldWriter::Flag(std::string_view key, bool value) {
  Line(key, value ? "true" : "false");
}

void FieldWriter::Text(std::string_view key, const std::string& value) {
  Line(key, Quoted(value));
}

void FieldWriter::Texts(std::string_view key,
                        const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(Quoted(value));
  Line(key, fmt::format("[{}]", fmt::join(quoted, ", ")));
}

void FieldWriter::Texts(std::string_view key,
                        const std::optional<std::vector<std::string>>& values) {
  if (values) Texts(key, *values);
}

void FieldWriter::Seeds(std::string_view key,
                        const std::vector<uint64_t>& values) {
  Line(key, fmt::format("[{}]", fmt::join(values, ", ")));
}

std::string NearestKey(std::string_view name,
                       std::span<const std::string> keys) {
  std::vector<std::string> last_parts;
  for (const std::string& key : keys) {
    last_parts.push_back(key.substr(key.rfind('.') + 1));
  }
  const std::string nearest = NearestName(name, last_parts);
  const auto found = std::find(last_parts.begin(), last_parts.end(), nearest);
  return found == last_parts.end() ? "" : keys[found - last_parts.begin()];
}

namespace {

/// What to do about a value that is neither TOML nor a bare word.
std::string ValueRemedy(const std::string& key, const std::string& value) {
  if (ParseOverrideValue(fmt::format("[{}]", value)) != nullptr) {
    return fmt::format("A list stands in brackets: --set '{}=[{}]'.", key,
                       value);
  }
  return fmt::format(
      "Put strings between quotes and quote the whole for the shell: --set "
      "'{}=\"my text\"'.",
      key);
}

}  // namespace

void ApplyOverride(const std::string& text, toml::table& root, Origin& origin) {
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
  const std::string value = text.substr(equals + 1);
  const auto holder = ParseOverrideValue(value);
  if (holder == nullptr) {
    ThrowError(ErrorKind::kConfig,
               "--set {}: the value is {}, but must be TOML or one bare word. "
               "{}",
               Quoted(text), Quoted(value), ValueRemedy(key, value));
  }

  toml::table* table = &root;
  size_t begin = 0;
  for (size_t dot = key.find('.'); dot != std::string::npos;
       begin = dot + 1, dot = key.find('.', begin)) {
    const std::string part = key.substr(begin, dot - begin);
    toml::node& node = table->insert(part, toml::table()).first->second;
    if (!node.is_table()) {
      ThrowError(ErrorKind::kConfig,
                 "--set {}: `{}` is {}, but only a table has keys. Override "
                 "the key itself.",
                 text, key.substr(0, dot), Shown(node));
    }
    table = node.as_table();
  }
  table->insert_or_assign(key.substr(begin), std::move(*holder->get("value")));
  origin.AddOverride(key, text);
}

}  // namespace isoloss::train
