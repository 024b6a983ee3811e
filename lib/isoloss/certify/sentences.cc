#include "isoloss/certify/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "isoloss/base/printable.h"

namespace isoloss::certify {

using system::ExitCode;

std::string Listed(const std::vector<std::string>& texts, size_t most) {
  const size_t shown = std::min(texts.size(), most);
  std::string list = fmt::format(
      "{}", fmt::join(texts.begin(),
                      texts.begin() + static_cast<ptrdiff_t>(shown), "; "));
  if (shown < texts.size()) {
    list += fmt::format("; and {} more", texts.size() - shown);
  }
  return list;
}

std::string StepsText(const std::vector<int64_t>& steps) {
  if (steps.size() <= kMostShown) {
    return fmt::format("{}", fmt::join(steps, ", "));
  }
  return fmt::format("{}, ... {} ({} steps)", steps.front(), steps.back(),
                     steps.size());
}

std::string Sentence(const Certificate& certificate, std::string text) {
  for (const std::string& name : certificate.names) {
    if (!text.starts_with(name)) continue;
    if (text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
    break;
  }
  return text;
}

std::string WhereText(const LogDifference& where) {
  std::string text = where.step == 0 ? std::string("before the first step, ")
                                     : fmt::format("step {}, ", where.step);
  text += where.quantity;
  if (!where.name.empty()) text += " of " + Printable(where.name);
  if (!where.first.empty() || !where.other.empty()) {
    text += fmt::format(": {} and {}", Printable(where.first),
                        Printable(where.other));
  }
  return text;
}

std::string HeadlineOf(const Certificate& certificate) {
  const bool repeats = certificate.gate == Gate::kRepeat;
  const Compared& of = certificate.compared;
  switch (certificate.Outcome()) {
    case ExitCode::kPass:
      return fmt::format(
          "{} equal to the bit in all that was recorded of {} steps, {} to {}.",
          repeats ? fmt::format("{} runs are", certificate.runs.size())
                  : "The resumed run and the whole run are",
          of.steps, of.first_step, of.last_step);
    case ExitCode::kFail: {
      const auto earliest = std::ranges::min_element(
          certificate.differences, {},
          [](const Difference& d) { return d.where.step; });
      return Sentence(certificate, fmt::format("{} parts from {} at {}.",
                                               certificate.names[earliest->run],
                                               certificate.names[0],
                                               WhereText(earliest->where)));
    }
    case ExitCode::kInconclusive:
      return fmt::format(
          "Nothing that was compared differs{}, but too little "
          "was recorded for a certificate.",
          of.steps == 0 ? "" : fmt::format(" ({} steps)", of.steps));
    default:
      return "These files can't be certified.";
  }
}

std::vector<std::string> ComparedTexts(const Compared& of) {
  std::vector<std::string> texts;
  if (of.steps > 0) {
    std::vector<std::string> shown;
    for (const std::string& quantity : of.quantities) {
      if (quantity.find('/') == std::string::npos) shown.push_back(quantity);
    }
    texts.push_back(
        fmt::format("{} steps: {}", of.steps, fmt::join(shown, ", ")));
  }
  if (of.has_weights_before || of.has_weights_after) {
    texts.push_back(fmt::format(
        "digests of all weights {}{}{}",
        of.has_weights_before ? "before the first step" : "",
        of.has_weights_before && of.has_weights_after ? " and " : "",
        of.has_weights_after ? "after the last one" : ""));
  }
  if (of.has_weights_at_restart) {
    texts.emplace_back("digests of all weights at the restart");
  }
  if (of.digests > 0) {
    texts.push_back(fmt::format("{} digests of {} tensors at steps {}",
                                of.digests, of.tensors,
                                StepsText(of.tensor_steps)));
  }
  if (of.operations > 0) {
    texts.push_back(fmt::format("{} tensors of {} operations at steps {}",
                                of.operation_tensors, of.operations,
                                StepsText(of.operation_steps)));
  }
  return texts;
}

std::string HoldsFor(const Certificate& certificate) {
  const auto with_log = std::ranges::find_if(
      certificate.runs,
      [](const RecordedRun& run) { return !run.logs.empty(); });
  if (with_log == certificate.runs.end() || with_log->has_printed_log()) {
    return "";  // such a log does not say where it was made
  }
  const runlog::Provenance& p = with_log->log().provenance;
  std::vector<std::string> parts;
  const auto add = [&](const char* label, const std::string& value) {
    if (value.empty()) return;
    parts.push_back(fmt::format("{}{}", label, Printable(value)));
  };
  add("", p.tool_version);
  add("commit ", p.commit == "unknown" ? "" : p.commit);
  add("device ", p.cpu_target);
  add("config ", p.config_digest);
  add("recipe ", p.recipe);
  if (p.seed >= 0) add("seed ", fmt::to_string(p.seed));
  add("ranks ", fmt::to_string(p.ranks));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace isoloss::certify
