#include "isoloss/config/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::config {
namespace {

constexpr auto kIsAny = [](const auto& /*value*/) { return true; };

bool IsOneOf(std::string_view name, std::span<const std::string> names) {
  return std::ranges::find(names, name) != names.end();
}

/// Returns a text such as "holds 5 twice, but must be ...".
std::string Holds(const Node& element, bool repeated, std::string_view rule,
                  std::string_view remedy) {
  return fmt::format("holds {}{}, but must be {}.{}", Shown(element),
                     repeated ? " twice" : "", rule, remedy);
}

}  // namespace

std::string FallbackRemedy(std::string_view fallback) {
  if (fallback.empty()) return " Correct it.";
  return fmt::format(" Correct it or leave it out for {}.", fallback);
}

Reader::Reader(const Document& document)
    : Reader(document, document.root(), "", {}) {}

Reader::Reader(const Document& document, const Table& table,
               std::string section, const Place& place)
    : document_(&document),
      table_(&table),
      section_(std::move(section)),
      place_(place) {}

std::string Reader::Dotted(std::string_view key) const {
  return section_.empty() ? std::string(key)
                          : fmt::format("{}.{}", section_, key);
}

const Node* Reader::Find(std::string_view key) {
  known_.emplace_back(key);
  const Entry* entry = table_->Find(key);
  return entry == nullptr ? nullptr : &entry->node;
}

void Reader::Fail(std::string_view key, std::string_view message) const {
  const Entry* entry = table_->Find(key);
  ThrowError(ErrorKind::kConfig, "{}: `{}` {}{}",
             document_->Describe(entry ? entry->node.place : place_),
             Dotted(key), message, document_->remedy());
}

std::string Reader::Where(std::initializer_list<std::string_view> keys) const {
  const Place* place = &place_;
  for (const std::string_view key : keys) {
    const Entry* entry = table_->Find(key);
    if (entry == nullptr) continue;
    place = &entry->node.place;
    break;
  }
  return fmt::format("{}: [{}]", document_->Describe(*place), section_);
}

void Reader::FailRule(std::string_view key, const Node& node,
                      std::string_view rule, std::string_view remedy) const {
  Fail(key, fmt::format("is {}, but must be {}.{}", Shown(node), rule, remedy));
}

void Reader::Require(std::string_view key, std::string_view remedy) const {
  if (Has(key)) return;
  const std::string wanted(key);
  std::string misspelt;
  for (const Entry& given : table_->entries) {
    if (!NearestName(given.key, std::span(&wanted, 1)).empty()) {
      misspelt = fmt::format(" Is `{}` a misspelling of it?", given.key);
    }
  }
  Fail(key, fmt::format("is missing. {}{}", remedy, misspelt));
}

void Reader::RejectUnknown() const {
  for (const Entry& entry : table_->entries) {
    if (IsOneOf(entry.key, known_)) continue;
    const std::string dotted = Dotted(entry.key);
    std::string hint = DidYouMean(entry.key, known_);
    const std::string elsewhere =
        NearestKey(entry.key, document_->known_keys());
    if (hint.empty() && elsewhere == dotted) {
      hint = " It goes with another value of a key beside it.";
    } else if (hint.empty() && !elsewhere.empty()) {
      hint = fmt::format(" Did you mean `{}`?", elsewhere);
    }
    ThrowError(ErrorKind::kConfig,
               "{}: unknown key `{}`. Known keys{}{}: {}.{}{}",
               document_->Describe(entry.place), dotted,
               section_.empty() ? "" : " of ", section_,
               fmt::join(known_, ", "), hint, document_->remedy());
  }
}

Reader Reader::SectionOf(std::string_view key, const Node& node) const {
  const auto* table = node.As<Table>();
  const std::string dotted = Dotted(key);
  if (table == nullptr) {
    FailRule(key, node, "a table", fmt::format(" Write [{}].", dotted));
  }
  return {*document_, *table, dotted, node.place};
}

Reader Reader::Section(std::string_view key) {
  static const Table kEmpty;
  const Node* node = Find(key);
  if (node == nullptr) return {*document_, kEmpty, Dotted(key), {}};
  return SectionOf(key, *node);
}

std::vector<std::pair<std::string, Reader>> Reader::Sections() {
  std::vector<std::pair<std::string, Reader>> sections;
  for (const Entry& entry : table_->entries) {
    sections.push_back({entry.key, SectionOf(entry.key, entry.node)});
  }
  return sections;
}

std::vector<Reader> Reader::ReadTables(std::string_view key) {
  const Node* node = Find(key);
  if (node == nullptr) return {};
  const std::string remedy = fmt::format(" Write [[{}]].", Dotted(key));
  constexpr std::string_view kRule = "a list of tables";
  const auto* list = node->As<List>();
  if (list == nullptr) FailRule(key, *node, kRule, remedy);
  std::vector<Reader> readers;
  for (const Node& element : *list) {
    const auto* table = element.As<Table>();
    if (table == nullptr) Fail(key, Holds(element, false, kRule, remedy));
    readers.push_back({*document_, *table, Dotted(key), element.place});
  }
  return readers;
}

namespace {

/// A real value may be written as a whole number. Empty if it is no number.
std::optional<double> RealOf(const Node& node) {
  if (const auto* whole = node.As<int64_t>()) {
    return static_cast<double>(*whole);
  }
  if (const auto* real = node.As<double>()) return *real;
  return std::nullopt;
}

}  // namespace

std::optional<double> Reader::ReadReal(std::string_view key,
                                       const std::optional<double>& fallback,
                                       const Interval& range,
                                       std::string_view unit) {
  const Node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const std::optional<double> value = RealOf(*node);
  if (!value || !range.Contains(*value)) {
    FailRule(key, *node, "a number in " + WithUnit(range.ToString(), unit),
             FallbackRemedy(fallback && range.Contains(*fallback)
                                ? RealText(*fallback)
                                : ""));
  }
  return value;
}

void Reader::Reals(std::string_view key, std::vector<double>& values,
                   const Interval& range) {
  const std::string rule = "a list of numbers in " + range.ToString();
  constexpr std::string_view kRemedy = " Write for example [0.5, 1.0].";
  const auto* list = Find<List>(key, kIsAny, rule, kRemedy);
  if (list == nullptr) return;
  values.clear();
  for (const Node& element : *list) {
    const std::optional<double> value = RealOf(element);
    if (!value || !range.Contains(*value)) {
      Fail(key, Holds(element, false, rule, kRemedy));
    }
    values.push_back(*value);
  }
}

void Reader::Flag(std::string_view key, bool& value) {
  if (const bool* given =
          Find<bool>(key, kIsAny, "true or false",
                     FallbackRemedy(value ? "true" : "false"))) {
    value = *given;
  }
}

void Reader::Text(std::string_view key, std::string& value) {
  if (const auto* given = Find<std::string>(key, kIsAny, "a string",
                                            " Put it between quotes.")) {
    value = *given;
  }
}

void Reader::Names(std::string_view key, std::vector<std::string>& values) {
  const Node* node = Find(key);
  if (node == nullptr) return;
  const auto* name = node->As<std::string>();
  if (name != nullptr && !name->empty()) {
    values = {*name};
    return;
  }
  values = ReadDistinct<std::string>(
      key, *node, "a string or a list of distinct strings, none empty",
      [](const std::string& text) { return !text.empty(); },
      [](const std::string*) {
        return " Write \"name\", or [\"first\", \"second\"].";
      });
}

void Reader::OneOf(std::string_view key, std::string& value,
                   std::span<const std::string> words) {
  const Node* node = Find(key);
  if (node == nullptr) return;
  const auto* given = node->As<std::string>();
  if (given == nullptr || !IsOneOf(*given, words)) {
    FailRule(key, *node, fmt::format("one of {}", fmt::join(words, ", ")),
             given ? DidYouMean(*given, words) : "");
  }
  value = *given;
}

std::optional<std::vector<std::string>> Reader::ReadTexts(
    std::string_view key) {
  constexpr std::string_view kRule = "a list of strings, none empty";
  constexpr std::string_view kRemedy = " Write [\"first\", \"second\"].";
  const auto* list = Find<List>(key, kIsAny, kRule, kRemedy);
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> values;
  for (const Node& element : *list) {
    const auto* text = element.As<std::string>();
    if (text == nullptr || text->empty()) {
      Fail(key, Holds(element, false, kRule, kRemedy));
    }
    values.push_back(*text);
  }
  return values;
}

template <typename T>
std::vector<T> Reader::ReadDistinct(std::string_view key, const Node& node,
                                    std::string_view rule, auto&& valid,
                                    auto&& remedy) const {
  const auto* list = node.As<List>();
  if (list == nullptr || list->empty()) {
    FailRule(key, node, rule, remedy(nullptr));
  }
  std::vector<T> values;
  std::set<T> seen;
  for (const Node& element : *list) {
    const T* value = element.As<T>();
    const bool known = value != nullptr && valid(*value);
    if (!known || !seen.insert(*value).second) {
      Fail(key, Holds(element, known, rule, remedy(known ? nullptr : value)));
    }
    values.push_back(*value);
  }
  return values;
}

void Reader::Numbers(std::string_view key, std::vector<uint64_t>& values) {
  const Node* node = Find(key);
  if (node == nullptr) return;
  const auto given = ReadDistinct<int64_t>(
      key, *node, "a list of one or more distinct integers from 0",
      [](int64_t number) { return number >= 0; },
      [](const int64_t*) { return " Write for example [1, 2, 3, 4]."; });
  values.assign(given.begin(), given.end());
}

void Reader::Words(std::string_view key, std::vector<std::string>& values,
                   std::span<const std::string> words, std::string_view none) {
  const Node* node = Find(key);
  if (node == nullptr) return;
  const auto* text = node->As<std::string>();
  values.clear();
  if (!none.empty() && text != nullptr && *text == none) return;
  values = ReadDistinct<std::string>(
      key, *node, WordsRule(words, none),
      [&](const std::string& word) { return IsOneOf(word, words); },
      [&](const std::string* word) {
        return word ? DidYouMean(*word, words) : "";
      });
}

}  // namespace isoloss::config
