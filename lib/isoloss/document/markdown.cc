#include "isoloss/document/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::document {
namespace {

/// A cell or line is cut to this size before it is escaped.
constexpr size_t kMostCellBytes = 600;
/// A list has at most this number of items.
constexpr size_t kMostItems = 10;

bool IsWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
         (c >= 'a' && c <= 'z');
}

/// Returns whether a reference or link could begin at text[at].
bool StartsReference(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  switch (rest[0]) {
    case '@':
    case '#':
    case '!':
      return true;
    case ':':
      return rest.starts_with("://");
    case 'w':
    case 'W':
      return rest.size() > 1 && rest[1] == '.';
    case '-':  // GH-123
      return at > 0 && (text[at - 1] == 'H' || text[at - 1] == 'h');
    default:
      return false;
  }
}

/// Escapes text so that it marks up nothing. Readers show an entity as its
/// character, but never take it for syntax of Markdown or HTML.
std::string Escaped(std::string_view text) {
  constexpr std::string_view kMarks = "&<>|`*~[]\\$";
  const std::string shown =
      Printable(Shortened(std::string(text), kMostCellBytes));
  std::string markdown;
  for (size_t i = 0; i < shown.size(); ++i) {
    const char c = shown[i];
    // An underscore within a word is no emphasis.
    const bool underscore =
        c == '_' && (i == 0 || i + 1 == shown.size() || !IsWord(shown[i - 1]) ||
                     !IsWord(shown[i + 1]));
    if (underscore || kMarks.find(c) != kMarks.npos) {
      markdown += fmt::format("&#{};", static_cast<int>(c));
    } else {
      markdown += c;
    }
    if (StartsReference(shown, i)) markdown += "&#8203;";
  }
  return markdown;
}

/// Escapes an item of a list so that it begins no block of its own.
std::string Item(const std::string& text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  std::string item = Escaped(text.substr(begin));
  const bool is_marker = !item.empty() && (item[0] == '-' || item[0] == '+' ||
                                           (item[0] >= '0' && item[0] <= '9'));
  if (!is_marker) return item;
  return fmt::format("&#{};{}", static_cast<int>(item[0]), item.substr(1));
}

/// Shows a name or path as code.
std::string Code(std::string_view text) {
  return fmt::format("<code>{}</code>", Escaped(text));
}

/// Joins pieces, each of which is added whole or left out.
class Pieces {
 public:
  /// Returns false if the piece and the end of the text do not fit.
  bool Add(const std::string& piece) {
    constexpr size_t kEnd = 200;
    if (text_.size() + piece.size() + kEnd > kMostMarkdown) {
      ++left_out_;
      return false;
    }
    text_ += piece;
    return true;
  }

  /// Adds the end of an added piece, which is never left out.
  void End(const char* piece) { text_ += piece; }

  std::string Text() const {
    if (left_out_ == 0) return text_;
    return text_ + fmt::format(
                       "\n{} parts were left out, as a comment takes only so "
                       "much. They are in the other reports.\n",
                       left_out_);
  }

 private:
  std::string text_;
  size_t left_out_ = 0;
};

void AddList(const char* title, const std::vector<std::string>& items,
             Pieces& pieces) {
  if (items.empty()) return;
  std::string text = fmt::format("**{}**\n\n", title);
  const size_t shown = std::min(items.size(), kMostItems);
  for (size_t i = 0; i < shown; ++i) {
    text += fmt::format("- {}\n", Item(items[i]));
  }
  if (shown < items.size()) {
    text += fmt::format("- and {} more\n", items.size() - shown);
  }
  pieces.Add(text + "\n");
}

/// Returns the check's number of that name, or "-" if it has none.
std::string Cell(const Check& one, std::string_view name) {
  for (const Figure& number : one.numbers) {
    if (number.name == name) return Escaped(FigureText(number));
  }
  return "-";
}

std::string Interval(const Check& one) {
  const std::string lower = Cell(one, "lower");
  const std::string upper = Cell(one, "upper");
  if (lower == "-" || upper == "-") return "-";
  return fmt::format("{} to {}", lower, upper);
}

std::string CaseRow(const Check& one) {
  std::string said = Escaped(one.statement);
  if (!one.next.empty()) said += fmt::format("; next: {}", Escaped(one.next));
  const std::string name =
      one.title.empty()
          ? Code(one.name)
          : fmt::format("{} ({})", Escaped(one.title), Code(one.name));
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n",
                     StatusName(one.status), Escaped(one.group), name, said,
                     Cell(one, "statistic"), Cell(one, "limit"), Interval(one));
}

constexpr const char* kTableHead =
    "| result | level | check | what was found | value | limit | interval |\n"
    "|---|---|---|---|---|---|---|\n";

/// Adds the red and noticed checks, the severest first. Below, the rest are
/// folded up.
void AddTables(const Result& result, Pieces& pieces) {
  std::vector<Check> cases = result.checks;
  std::ranges::stable_sort(cases, std::greater(), &Check::status);
  const auto rest = std::ranges::find_if(
      cases, [](const Check& one) { return one.status < Status::kNoticed; });
  if (rest != cases.begin() && pieces.Add(kTableHead)) {
    for (auto one = cases.begin(); one != rest; ++one)
      pieces.Add(CaseRow(*one));
    pieces.End("\n");
  }
  if (rest == cases.end()) return;
  const auto passes = std::count_if(rest, cases.end(), [](const Check& one) {
    return one.status == Status::kPass;
  });
  if (!pieces.Add(fmt::format(
          "<details><summary>Passed: {}, skipped: {}</summary>\n\n{}", passes,
          cases.end() - rest - passes, kTableHead))) {
    return;
  }
  for (auto one = rest; one != cases.end(); ++one) pieces.Add(CaseRow(*one));
  pieces.End("\n</details>\n\n");
}

void AddResult(const Result& result, Pieces& pieces) {
  pieces.Add(fmt::format("## {}\n\n", Escaped(Summary(result))));
  AddList("Why", result.reasons, pieces);
  AddList("What it could have seen", result.could_have_seen, pieces);
  AddList("What it holds for", result.holds_for, pieces);
  AddList("Next", result.next, pieces);
  AddList("Warnings", result.warnings, pieces);
  AddTables(result, pieces);
  if (result.facts.empty() && result.file.empty()) return;
  std::string facts;
  if (!result.file.empty()) facts += fmt::format("file {}", Code(result.file));
  for (const auto& [name, value] : result.facts) {
    facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", Escaped(name),
                         Code(value));
  }
  pieces.Add(facts + "\n\n");
}

}  // namespace

std::string RenderMarkdown(const Report& report) {
  Pieces pieces;
  pieces.Add(std::string(kMarkdownFirstLine));
  std::vector<const Result*> results;
  for (const Result& result : report.results) results.push_back(&result);
  std::ranges::stable_sort(results, std::greater(),
                           [](const Result* result) { return result->status; });
  if (results.size() > 1) {
    pieces.Add("| result | verdict |\n|---|---|\n");
    for (const Result* result : results) {
      pieces.Add(fmt::format("| {} | {} |\n", StatusName(result->status),
                             Escaped(Summary(*result))));
    }
    pieces.Add("\n");
  }
  for (const Result* result : results) AddResult(*result, pieces);
  pieces.Add(fmt::format("{}: exit code {}\n", Code(report.command),
                         report.exit_code));
  return pieces.Text();
}

}  // namespace isoloss::document
