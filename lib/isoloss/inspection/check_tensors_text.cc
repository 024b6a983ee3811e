// Tells the findings of isoloss check-tensors in a table and in sentences.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "isoloss/base/grouped.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/inspection/check_tensors.h"
#include "isoloss/operations/deviation_pattern.h"

namespace isoloss::inspection {
namespace {

using operations::Finding;
using operations::OpenPoint;
using operations::OperationFile;

/// Makes the first letter a capital, unless the sentence begins with a name,
/// such as `fprop_w`.
std::string Capital(std::string sentence) {
  const size_t word = sentence.find(' ');
  if (!sentence.empty() && sentence.find('_') > word) {
    sentence[0] = static_cast<char>(
        std::toupper(static_cast<unsigned char>(sentence[0])));
  }
  return sentence;
}

std::string NonFiniteText(const CheckedTensors& checked,
                          const document::TextStyle& style) {
  std::string text;
  for (const NonFiniteTensor& found : checked.non_finite) {
    const OperationFile& file = checked.files[found.file];
    const std::string sentence = fmt::format(
        "{} ({}), step {}: {} of {} elements of {} are not finite{}.",
        Printable(file.operations[found.operation].module),
        file.operations[found.operation].type, file.step, found.elements,
        found.of, found.tensor,
        found.is_expected ? ", and the step was to be skipped" : "");
    text += document::Wrap(sentence, 0, 2, style) + "\n";
  }
  return text;
}

constexpr size_t kMostNames = 20;

/// Lists the first of `names`, and says how many more there are.
template <typename Names>
std::string FirstOf(const Names& names) {
  const size_t count = std::min(names.size(), kMostNames);
  return fmt::format(
      "{}{}",
      fmt::join(names.begin(),
                std::next(names.begin(), static_cast<ptrdiff_t>(count)), ", "),
      names.size() > count
          ? fmt::format(" and {} more (--json)", names.size() - count)
          : "");
}

/// Lists the open points, each once, with all steps, ranks and modules that
/// have it.
std::string OpenText(const CheckedTensors& checked,
                     const document::TextStyle& style) {
  struct Whose {
    std::set<std::string> modules;
    std::set<std::pair<int64_t, int64_t>> places;
  };
  std::map<std::pair<bool, std::string>, Whose> points;
  for (const OpenPoint& point : checked.open) {
    const OperationFile& file = checked.files[point.file];
    Whose& whose = points[{!point.forbids_pass, Printable(point.text)}];
    if (!point.module.empty()) whose.modules.insert(Printable(point.module));
    whose.places.emplace(file.step, file.rank);
  }
  std::string text;
  for (const auto& [key, whose] : points) {
    const auto [step, rank] = *whose.places.begin();
    text += document::Wrap(
                fmt::format(
                    "{}, step {}, rank {}{}: {}{}.",
                    key.first ? "Note" : "Open", step, rank,
                    whose.places.size() > 1
                        ? fmt::format(", and {} more", whose.places.size() - 1)
                        : "",
                    key.second,
                    whose.modules.empty()
                        ? ""
                        : fmt::format(": {}", FirstOf(whose.modules))),
                0, 2, style) +
            "\n";
  }
  return text;
}

/// Groups modules by whether they are quantised and why, and shows the first of
/// each group.
std::string ModulesText(const CheckedTensors& checked,
                        const document::TextStyle& style) {
  std::map<std::pair<bool, std::string>, std::vector<std::string>> by_reason;
  for (const operations::ModuleChoice& choice : checked.modules) {
    by_reason[{choice.quantized, choice.reason}].push_back(
        Printable(choice.module));
  }
  std::string text;
  for (const auto& [key, names] : by_reason) {
    text += document::Wrap(fmt::format("{} ({}; {} of {} linear modules): {}.",
                                       key.first ? "Taken as quantised"
                                                 : "Not taken as quantised",
                                       Printable(key.second), names.size(),
                                       checked.modules.size(), FirstOf(names)),
                           0, 2, style) +
            "\n";
  }
  return text;
}

std::string RemarksText(const CheckedTensors& checked,
                        const document::TextStyle& style) {
  std::string text;
  for (const std::string& remark : checked.pattern_remarks) {
    text += document::Wrap(remark, 0, 2, style) + "\n";
  }
  return text;
}

/// Says which bit or lane several products share, as of a sick processor.
std::string SickText(const CheckedTensors& checked,
                     const document::TextStyle& style) {
  std::vector<const operations::Deviations*> results;
  int64_t elements = 0;
  for (const Finding& finding : checked.findings) {
    if (finding.deviations == nullptr) continue;
    elements += finding.comparison.elements();
    if (!finding.is_right()) results.push_back(finding.deviations.get());
  }
  const std::string text = operations::CommonPatternText(results, elements);
  return text.empty() ? "" : document::Wrap(text, 0, 2, style) + "\n";
}

std::string LeftOutText(const CheckedTensors& checked) {
  return checked.left_out() == 0
             ? ""
             : fmt::format(
                   " {} of {} linear modules were not taken as quantised.",
                   checked.left_out(), checked.modules.size());
}

std::string SummaryOf(const CheckedTensors& checked) {
  int64_t elements = 0;
  int64_t others = 0;
  for (const Finding& finding : checked.findings) {
    elements += finding.comparison.elements();
    others += finding.comparison.other();
  }
  if (elements == 0) return "INCONCLUSIVE: there is no result to check.";
  const system::ExitCode outcome = checked.Outcome();
  const char* word = system::OutcomeName(outcome);
  const int64_t count = checked.not_finite();
  std::string reasons;
  if (count > 0) {
    reasons = count == 1
                  ? "1 tensor holds elements that are not finite."
                  : fmt::format("{} tensors hold elements that are not finite.",
                                count);
  }
  const auto open =
      std::ranges::count(checked.open, true, &OpenPoint::forbids_pass);
  if (open > 0) {
    reasons += fmt::format("{}{} point{} open.", reasons.empty() ? "" : " ",
                           open, open == 1 ? " is" : "s are");
  }
  if (!checked.unexpected.empty()) {
    reasons +=
        fmt::format("{}{} finding{} of the audit {} not as expected.",
                    reasons.empty() ? "" : " ", checked.unexpected.size(),
                    checked.unexpected.size() == 1 ? "" : "s",
                    checked.unexpected.size() == 1 ? "is" : "are");
  }
  if (!reasons.empty() && checked.wrong() == 0) {
    return fmt::format(
        "{}: {} {} checked {} what {} inputs give under recipe {}.", word,
        reasons, checked.findings.size(),
        checked.findings.size() == 1 ? "result is" : "results are",
        checked.findings.size() == 1 ? "its" : "their", checked.recipe.name);
  }
  return fmt::format(
      "{}: {} of {} tensors have elements that no order of summation {}"
      "explains under recipe {} ({} of {} elements).{}",
      word, checked.wrong(), checked.findings.size(),
      checked.has_known_sums() ? "and no known tensor core " : "",
      checked.recipe.name, others, elements,
      reasons.empty() ? "" : " " + reasons);
}

/// Says by which sums a product of an unknown order is judged.
std::string HowJudged(const Finding& finding) {
  if (finding.rounded_parts > 0) {
    return fmt::format(
        "Products of which {} ranks hold a part each, as placements tell, are "
        "judged as a sum of {} rounded parts",
        finding.rounded_parts, finding.rounded_parts);
  }
  return "Products with sums in an unknown order, as cuBLAS' split-K may have, "
         "are judged as " +
         (finding.coarse_cores.empty()
              ? "FP32 sums in any order"
              : "sums that lose as many bits as those of " +
                    finding.coarse_cores);
}

/// Says which tensor cores made the products, and how many bits are theirs.
std::string SumsText(const CheckedTensors& checked,
                     const document::TextStyle& style) {
  struct Count {
    int64_t elements = 0;
    int64_t equal = 0;
    std::set<std::string> alike = {};
  };
  std::map<std::string, Count> by_sums;
  std::map<std::string, std::vector<std::string>> unknown;
  for (const Finding& finding : checked.findings) {
    if (finding.has_unknown_order) {
      unknown[HowJudged(finding)].push_back(
          fmt::format("{} {}", Printable(finding.module), finding.part));
    }
    if (finding.sums.empty()) continue;
    const runlog::OracleRow row = finding.comparison.Row();
    Count& count = by_sums[finding.sums];
    count.elements += row.elements;
    count.equal += row.equal;
    count.alike.insert(finding.sums_alike.begin(), finding.sums_alike.end());
  }
  std::string text;
  for (const auto& [sums, count] : by_sums) {
    text += document::Wrap(
                fmt::format(
                    "Products: {}: {} of {} elements to the bit.{}", sums,
                    Grouped(count.equal), Grouped(count.elements),
                    count.alike.empty()
                        ? ""
                        : fmt::format(" They do not tell these apart from: {}.",
                                      fmt::join(count.alike, "; "))),
                0, 2, style) +
            "\n";
  }
  for (const auto& [judged, names] : unknown) {
    text += document::Wrap(fmt::format("{}: {}.", judged, FirstOf(names)), 0, 2,
                           style) +
            "\n";
  }
  return text;
}

/// Prints a table of the findings that are right, or of those that are not.
std::string TableOf(const CheckedTensors& checked, bool right,
                    const document::TextStyle& style) {
  std::string text;
  size_t file = checked.files.size();
  size_t operation = 0;
  for (const Finding& finding : checked.findings) {
    if (finding.is_right() != right) continue;
    if (finding.file != file || finding.operation != operation) {
      file = finding.file;
      operation = finding.operation;
      text += fmt::format("{} ({}), step {}\n", Printable(finding.module),
                          finding.type, checked.files[file].step);
    }
    const runlog::OracleRow row = finding.comparison.Row();
    text += fmt::format("  {:<34}{:>11}{:>11}{:>11}{:>11}\n", finding.part,
                        row.elements, row.equal, row.flips, row.other);
    const std::string sentences = Sentences(finding);
    if (sentences.empty()) continue;
    text += "    " + document::Wrap(sentences, 4, 4, style) + "\n";
  }
  return text;
}

/// A mistake that leaves more than a tenth of the differing elements
/// unexplained is not the cause.
bool IsCause(const operations::Explanation& why, int64_t others) {
  constexpr int64_t kTenth = 10;
  return why.other <= others / kTenth;
}

std::string ExplanationText(const operations::Explanation& why,
                            int64_t others) {
  if (why.is_guess) {
    return fmt::format(
        "{}. That is only a possibility, since other small errors look alike. "
        "It leaves {} others of {} ({}).",
        Capital(why.sentence), why.other, others, why.name);
  }
  if (why.other == 0) {
    return fmt::format("{}. This explains all elements ({}).",
                       Capital(why.sentence), why.name);
  }
  if (IsCause(why, others)) {
    return fmt::format("{}. This leaves {} others of {} ({}).",
                       Capital(why.sentence), why.other, others, why.name);
  }
  return fmt::format(
      "No known mistake explains all. The nearest one explains {} of {} "
      "elements, which may be by chance: {} ({}).",
      others - why.other, others, why.sentence, why.name);
}

std::string WorstText(const runlog::OracleRow& row) {
  const bool hides =
      std::isfinite(row.worst_value) && !std::isfinite(row.worst_expected);
  return fmt::format(
      " The worst is row {}, column {}: it is {:.9g}, but {} {:.9g}.",
      row.worst_row, row.worst_column, row.worst_value,
      hides ? "its inputs make it" : "should be", row.worst_expected);
}

std::string AdviceFor(const std::string& name) {
  if (name.starts_with("unquantized.")) {
    return " If the module is not to be quantised, name it with --exclude.";
  }
  if (name.starts_with("quantized.")) {
    return " If the module is to be quantised, its name must match --include, "
           "and not --exclude.";
  }
  return "";
}

}  // namespace

std::string Sentences(const Finding& finding) {
  if (finding.is_right()) return "";
  const runlog::OracleRow row = finding.comparison.Row();
  const auto& why = finding.explanation;
  std::string text = finding.remark.empty() ? "" : finding.remark + " ";
  if (finding.looks_sick && !why) {
    return text + "No known mistake explains it: suspect the processor.";
  }
  if (!finding.places.empty() && !(why && why->other == 0)) {
    text += finding.places + " ";
  }
  text +=
      why ? ExplanationText(*why, row.other) : "No known mistake explains it.";
  if (why && IsCause(*why, row.other)) {
    text += AdviceFor(why->name);
  } else {
    // A remark has the places already.
    if (finding.remark.empty()) text += WorstText(row);
    if (!finding.untried.empty()) text += " " + finding.untried;
    if (!finding.knows_previous) {
      text +=
          " No file of the step before has this operation, so that what is "
          "one step old was not tried: give that file, too.";
    }
  }
  // A second mistake that leaves most elements unexplained tells nothing.
  if (!why || why->runner_up.empty() ||
      (!why->is_ambiguous && why->runner_up_other > row.other / 2)) {
    return text;
  }
  return text +
         (why->is_ambiguous
              ? fmt::format(" {} explains it as well, with {} others: these "
                            "tensors do not tell the two apart.",
                            why->runner_up, why->runner_up_other)
          : why->runner_up_other == 0
              ? fmt::format(" {} explains all, too, but by many more flips.",
                            why->runner_up)
              : fmt::format(" The next best, {}, leaves {} others.",
                            why->runner_up, why->runner_up_other));
}

std::string RenderChecked(const CheckedTensors& checked, bool all,
                          const document::TextStyle& style) {
  std::string table = TableOf(checked, /*right=*/false, style);
  if (all) table += TableOf(checked, /*right=*/true, style);
  const auto passed =
      static_cast<int64_t>(checked.findings.size()) - checked.wrong();
  if (!table.empty()) {
    table = fmt::format("{:<36}{:>11}{:>11}{:>11}{:>11}\n", "operation",
                        "elements", "equal", "flips", "other") +
            table +
            document::Wrap(
                "flips: another order of FP32 sums gives these values. other: "
                "no order gives these; of products whose tensor cores are "
                "known, they have other bits.",
                0, 0, style) +
            "\n";
  }
  if (!all && passed > 0) {
    table +=
        document::Wrap(
            fmt::format("Without others: {} of {} tensors. --all lists them.",
                        passed, checked.findings.size()),
            0, 0, style) +
        "\n";
  }
  return SumsText(checked, style) + table + SickText(checked, style) +
         NonFiniteText(checked, style) + OpenText(checked, style) +
         (checked.audits.empty() ? ModulesText(checked, style)
                                 : RenderAudit(checked, style)) +
         RemarksText(checked, style) +
         document::Wrap(SummaryOf(checked) + LeftOutText(checked), 0, 0,
                        style) +
         "\n";
}

}  // namespace isoloss::inspection
