#include "isoloss/report/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/printable.h"
#include "isoloss/document/markup.h"
#include "isoloss/document/text_layout.h"

namespace isoloss::report {
namespace {

using document::EscapedMarkup;
using document::Shortened;

/// Of one check: a bug can have as many findings as a run has elements.
constexpr size_t kMostFindings = 20;
constexpr size_t kMostFailureBytes = 10000;

/// Printable text as XML. Of what is printable, XML 1.0 lacks U+FFFE and
/// U+FFFF.
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

/// The value of an attribute, in which readers take a line end for a space.
std::string Value(std::string_view text) { return Xml(Printable(text)); }

std::string Property(std::string_view name, std::string_view value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n",
                     Value(name), Value(value));
}

std::string Properties(const CiSuite& suite) {
  std::string text = "    <properties>\n";
  text += Property("outcome", suite.outcome);
  text += Property("exit_code", std::to_string(suite.exit_code));
  for (const auto& [name, value] : suite.facts) text += Property(name, value);
  for (const CiCase& one : suite.cases) {
    for (const CiNumber& number : one.numbers) {
      text +=
          Property(fmt::format("{} {} {}", one.group, one.name, number.name),
                   CiNumberText(number));
    }
  }
  return text + "    </properties>\n";
}

/// All that there is to say of a check, line by line.
std::string Details(const CiCase& one) {
  std::string text = one.statement + "\n";
  for (const CiNumber& number : one.numbers) {
    text += fmt::format("{}: {}\n", number.name, CiNumberText(number));
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

/// Which element says it; "" of a pass.
const char* ElementOf(CiStatus status) {
  switch (status) {
    case CiStatus::kPass:
      return "";
    case CiStatus::kSkipped:
    case CiStatus::kNoticed:
      return "skipped";
    case CiStatus::kInconclusive:
    case CiStatus::kFailure:
      return "failure";
    case CiStatus::kError:
      break;
  }
  return "error";
}

std::string TestCase(const CiSuite& suite, const CiCase& one) {
  // Readers take what stands before the last dot for a package.
  std::string text = fmt::format(
      "    <testcase classname=\"{}\" name=\"{}\">\n",
      Value(fmt::format("{}.{}", suite.name, one.group)), Value(one.name));
  const std::string element = ElementOf(one.status);
  if (element.empty()) {
    text += fmt::format("      <system-out>{}</system-out>\n", Details(one));
  } else {
    text +=
        fmt::format("      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n",
                    element, CiStatusName(one.status),
                    Value(Shortened(fmt::format("{}{}{}", one.title,
                                                one.title.empty() ? "" : ": ",
                                                one.statement),
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

  void Add(CiStatus status) {
    const std::string_view element = ElementOf(status);
    ++tests;
    failures += element == "failure" ? 1 : 0;
    errors += element == "error" ? 1 : 0;
    skipped += element == "skipped" ? 1 : 0;
  }
};

}  // namespace

std::string RenderJunit(const CiReport& report) {
  std::string suites;
  Counts all;
  for (const CiSuite& suite : report.suites) {
    std::vector<CiCase> cases = {VerdictCase(suite)};
    cases.insert(cases.end(), suite.cases.begin(), suite.cases.end());
    Counts own;
    std::string text;
    for (const CiCase& one : cases) {
      own.Add(one.status);
      all.Add(one.status);
      text += TestCase(suite, one);
    }
    suites += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
        "skipped=\"{}\"{}>\n{}{}  </testsuite>\n",
        Value(suite.name), own.tests, own.failures, own.errors, own.skipped,
        suite.file.empty() ? ""
                           : fmt::format(" file=\"{}\"", Value(suite.file)),
        Properties(suite), text);
  }
  return fmt::format(
      "{}<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\">\n{}</testsuites>\n",
      kJunitFirstLine, Value(report.command), all.tests, all.failures,
      all.errors, suites);
}

}  // namespace isoloss::report
