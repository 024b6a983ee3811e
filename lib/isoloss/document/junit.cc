#include "isoloss/document/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/printable.h"
#include "isoloss/document/markup.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::document {
namespace {

/// These limits hold for one check: a bug can have as many findings as a run
/// has elements.
constexpr size_t kMostFindings = 20;
constexpr size_t kMostFailureBytes = 10000;

/// Returns printable text as XML. XML 1.0 lacks U+FFFE and U+FFFF, which count
/// as printable.
std::string Xml(const std::string& text) {
  std::string known;
  const std::string_view all = text;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = all.substr(i);
    if (rest.starts_with("\xEF\xBF\xBE") || rest.starts_with("\xEF\xBF\xBF")) {
      known += rest[2] == '\xBE' ? "\\u{fffe}" : "\\u{ffff}";
      i += 2;
    } else {
      known += text[i];
    }
  }
  return EscapedMarkup(known);
}

/// Returns the value of an attribute, in which readers take a line end for a
/// space.
std::string Attribute(std::string_view text) { return Xml(Printable(text)); }

std::string Property(std::string_view name, std::string_view value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n",
                     Attribute(name), Attribute(value));
}

std::string Properties(const Result& result) {
  std::string text = "    <properties>\n";
  text += Property("outcome", result.outcome);
  text += Property("exit_code", std::to_string(result.exit_code));
  for (const auto& [name, value] : result.facts) text += Property(name, value);
  for (const Check& one : result.checks) {
    for (const Figure& number : one.numbers) {
      text +=
          Property(fmt::format("{} {} {}", one.group, one.name, number.name),
                   FigureText(number));
    }
  }
  return text + "    </properties>\n";
}

/// Returns all that is known of a check, line by line.
std::string Details(const Check& one) {
  std::string text = one.statement + "\n";
  for (const Figure& number : one.numbers) {
    text += fmt::format("{}: {}\n", number.name, FigureText(number));
  }
  if (!one.evidence.empty())
    text += fmt::format("evidence: {}\n", one.evidence);
  const size_t shown = std::min(one.findings.size(), kMostFindings);
  for (size_t i = 0; i < shown; ++i) {
    text += fmt::format("- {}\n", one.findings[i]);
  }
  if (shown < one.findings.size()) {
    text += fmt::format("- and {} more\n", one.findings.size() - shown);
  }
  if (!one.next.empty()) text += fmt::format("next: {}\n", one.next);
  return Xml(PrintableLines(Shortened(std::move(text), kMostFailureBytes)));
}

/// Returns the element that says the status; "" for a pass.
const char* ElementOf(Status status) {
  switch (status) {
    case Status::kPass:
      return "";
    case Status::kSkipped:
    case Status::kNoticed:
      return "skipped";
    case Status::kInconclusive:
    case Status::kFailure:
      return "failure";
    case Status::kError:
      break;
  }
  return "error";
}

std::string TestCase(const Result& result, const Check& one) {
  // Readers take the text before the last dot for a package.
  std::string text =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\">\n",
                  Attribute(fmt::format("{}.{}", result.name, one.group)),
                  Attribute(one.name));
  const std::string element = ElementOf(one.status);
  if (element.empty()) {
    text += fmt::format("      <system-out>{}</system-out>\n", Details(one));
  } else {
    text += fmt::format(
        "      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n", element,
        StatusName(one.status),
        Attribute(
            Shortened(fmt::format("{}{}{}", one.title,
                                  one.title.empty() ? "" : ": ", one.statement),
                      kMostFailureBytes)),
        Details(one));
  }
  return text + "    </testcase>\n";
}

struct Counts {
  size_t tests = 0;
  size_t failures = 0;
  size_t errors = 0;
  size_t skipped = 0;

  void Add(Status status) {
    const std::string_view element = ElementOf(status);
    ++tests;
    failures += element == "failure" ? 1 : 0;
    errors += element == "error" ? 1 : 0;
    skipped += element == "skipped" ? 1 : 0;
  }
};

}  // namespace

std::string RenderJunit(const Report& report) {
  std::string suites;
  Counts all;
  for (const Result& result : report.results) {
    std::vector<Check> cases = {VerdictCheck(result)};
    cases.insert(cases.end(), result.checks.begin(), result.checks.end());
    Counts own;
    std::string text;
    for (const Check& one : cases) {
      own.Add(one.status);
      all.Add(one.status);
      text += TestCase(result, one);
    }
    suites += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
        "skipped=\"{}\"{}>\n{}{}  </testsuite>\n",
        Attribute(result.name), own.tests, own.failures, own.errors,
        own.skipped,
        result.file.empty()
            ? ""
            : fmt::format(" file=\"{}\"", Attribute(result.file)),
        Properties(result), text);
  }
  return fmt::format(
      "{}<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\">\n{}</testsuites>\n",
      kJunitFirstLine, Attribute(report.command), all.tests, all.failures,
      all.errors, suites);
}

}  // namespace isoloss::document
