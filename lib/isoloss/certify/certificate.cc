#include "isoloss/certify/certificate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/base/printable.h"

namespace isoloss::certify {
namespace {

using document::Document;
using document::Status;
using document::Tone;
using system::ExitCode;

constexpr size_t kMostShown = 8;

const char* OutcomeName(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return "PASS";
    case ExitCode::kFail:
      return "FAIL";
    case ExitCode::kInconclusive:
      return "INCONCLUSIVE";
    default:
      return "INVALID";
  }
}

Status StatusOf(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return Status::kPass;
    case ExitCode::kFail:
      return Status::kFailure;
    case ExitCode::kInconclusive:
      return Status::kInconclusive;
    default:
      return Status::kError;
  }
}

/// Returns the first texts, and how many follow.
std::string Listed(const std::vector<std::string>& texts,
                   size_t most = kMostShown) {
  const size_t shown = std::min(texts.size(), most);
  std::string list = fmt::format(
      "{}", fmt::join(texts.begin(),
                      texts.begin() + static_cast<ptrdiff_t>(shown), "; "));
  if (shown < texts.size()) {
    list += fmt::format("; and {} more", texts.size() - shown);
  }
  return list;
}

std::string Steps(const std::vector<int64_t>& steps) {
  if (steps.size() <= kMostShown) {
    return fmt::format("{}", fmt::join(steps, ", "));
  }
  return fmt::format("{}, ... {} ({} steps)", steps.front(), steps.back(),
                     steps.size());
}

// ---- sentences --------------------------------------------------------------

/// Begins a sentence that may begin with the name of a run.
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

/// Says what was compared, a phrase for each kind.
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
                                Steps(of.tensor_steps)));
  }
  if (of.operations > 0) {
    texts.push_back(fmt::format("{} tensors of {} operations at steps {}",
                                of.operation_tensors, of.operations,
                                Steps(of.operation_steps)));
  }
  return texts;
}

/// Says for what the certificate holds.
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

/// Says why there is no certificate.
std::vector<std::string> ReasonsOf(const Certificate& certificate) {
  std::vector<std::string> reasons = certificate.invalid;
  for (const Difference& difference : certificate.differences) {
    reasons.push_back(fmt::format(
        "{} parts from {} at {}{}.", certificate.names[difference.run],
        certificate.names[0], WhereText(difference.where),
        difference.rank == kAllRanks
            ? ""
            : fmt::format(" (rank {})", difference.rank)));
    if (difference.operation) {
      reasons.push_back(fmt::format("Step {}: {}.", difference.operation->step,
                                    difference.operation->Text()));
    }
    for (const Cause& cause : difference.causes) reasons.push_back(cause.text);
  }
  std::ranges::copy(certificate.lacking, std::back_inserter(reasons));
  for (std::string& text : reasons) {
    text = Sentence(certificate, std::move(text));
  }
  return reasons;
}

std::vector<std::string> NextOf(const Certificate& certificate) {
  std::vector<std::string> next;
  for (const Difference& difference : certificate.differences) {
    if (!difference.next.empty() &&
        std::ranges::find(next, difference.next) == next.end()) {
      next.push_back(difference.next);
    }
  }
  return next;
}

// ---- the document -----------------------------------------------------------

Document RunDocument(const Certificate& certificate, size_t place) {
  const RecordedRun& run = certificate.runs[place];
  Document document;
  document.Put("name", certificate.names[place]);
  document.Put("file", run.name);
  std::vector<int64_t> ranks;
  for (const auto& [rank, log] : run.logs) {
    if (rank != kAllRanks) ranks.push_back(rank);
  }
  document.Put("ranks_given", ranks);
  document.Put("operation_steps", run.OperationSteps());
  std::string text = run.name;
  if (!run.logs.empty()) {
    const runlog::RunLog& log = run.log();
    const runlog::Provenance& p = log.provenance;
    document.Put("arm", p.arm);
    document.Put("seed", p.seed);
    document.Put("recipe", p.recipe);
    document.Put("program", p.tool_version);
    document.Put("commit", p.commit);
    document.Put("device", p.cpu_target);
    document.Put("config_digest", p.config_digest);
    document.Put("ranks", p.ranks);
    document.Put("steps", log.steps.step.size());
    document.Put("complete", p.complete);
    if (!log.steps.step.empty()) {
      document.Put("first_step", log.steps.step.front());
      document.Put("last_step", log.steps.step.back());
      text += fmt::format(": steps {} to {}", log.steps.step.front(),
                          log.steps.step.back());
    }
  }
  if (!run.operations.empty()) {
    text +=
        fmt::format(", operations of steps {}", Steps(run.OperationSteps()));
  }
  const std::string& name = certificate.names[place];
  document.AddField(name == "the whole run"     ? "whole"
                    : name == "the resumed run" ? "resumed"
                                                : name,
                    text);
  return document;
}

Document CauseDocument(const Certificate& certificate, const Cause& cause) {
  const std::string text = Sentence(certificate, cause.text);
  Document document;
  document.Put("kind", cause.kind);
  document.Put("text", text);
  document.AddField("cause", text);
  return document;
}

Document OperationDocument(const OperationDifference& of) {
  constexpr const char* kWhats[] = {"result", "input", "setting", "missing"};
  Document document;
  document.Put("step", of.step);
  document.Put("rank", of.rank);
  document.Put("what", kWhats[static_cast<size_t>(of.what)]);
  document.Put("type", of.type);
  document.Put("module", of.module);
  document.Put("part", of.part);
  document.Put("tensor", of.tensor.name);
  document.Put("elements", of.tensor.elements);
  document.Put("of", of.tensor.of);
  document.Put("place", of.tensor.place);
  document.Put("first", of.tensor.first);
  document.Put("other", of.tensor.other);
  document.Put("after", of.after);
  document.AddField("operation", of.Text());
  return document;
}

Document InLogDocument(const LogDifference& where) {
  Document document;
  document.Put("step", where.step);
  document.Put("quantity", where.quantity);
  document.Put("tensor", where.name);
  document.Put("first", where.first);
  document.Put("other", where.other);
  document.AddField("in the log", WhereText(where));
  return document;
}

Document DifferenceDocument(const Certificate& certificate,
                            const Difference& difference) {
  const LogDifference& where = difference.where;
  Document document;
  document.Put("run", certificate.names[difference.run]);
  document.Put("file", certificate.runs[difference.run].name);
  if (difference.rank != kAllRanks) document.Put("rank", difference.rank);
  document.Put("step", where.step);
  document.Put("quantity", where.quantity);
  document.Put("tensor", where.name);
  document.Put("first", where.first);
  document.Put("other", where.other);
  document.Put("last_equal_step", where.last_equal_step);
  document.AddField(
      "parts",
      fmt::format("{} from {}{} at {}", certificate.names[difference.run],
                  certificate.names[0],
                  difference.rank == kAllRanks
                      ? ""
                      : fmt::format(", rank {},", difference.rank),
                  WhereText(where)));
  if (difference.in_log) {
    document.PutObject("in_log", InLogDocument(*difference.in_log));
  }
  if (difference.operation) {
    document.PutObject("operation", OperationDocument(*difference.operation));
  }
  const std::vector<std::string>& others = difference.other_operations;
  document.Put("other_operations", others);
  if (!others.empty()) {
    document.AddField("also",
                      "equal inputs and other results: " + Listed(others, 3));
  }
  document.PutEach("causes", difference.causes, [&](const Cause& cause) {
    return CauseDocument(certificate, cause);
  });
  document.Put("next", difference.next);
  document.AddField("next", difference.next);
  return document;
}

Document ComparedDocument(const Compared& of) {
  Document document;
  document.Put("steps", of.steps);
  document.Put("first_step", of.first_step);
  document.Put("last_step", of.last_step);
  document.Put("quantities", of.quantities);
  document.Put("weights_before", of.has_weights_before);
  document.Put("weights_after", of.has_weights_after);
  document.Put("weights_at_restart", of.has_weights_at_restart);
  document.Put("states_at_restart", of.has_states_at_restart);
  document.Put("tensor_steps", of.tensor_steps);
  document.Put("tensors", of.tensors);
  document.Put("digests", of.digests);
  document.Put("operation_steps", of.operation_steps);
  document.Put("operations", of.operations);
  document.Put("operation_tensors", of.operation_tensors);
  const char* label = "compared";
  for (const std::string& text : ComparedTexts(of)) {
    document.AddField(label, text);
    label = "";
  }
  return document;
}

void PutSentences(const Certificate& certificate, const char* key,
                  const char* label, std::vector<std::string> sentences,
                  Document& document) {
  for (std::string& text : sentences) {
    text = Sentence(certificate, std::move(text));
  }
  document.Put(key, sentences);
  for (size_t i = 0; i < std::min(kMostShown, sentences.size()); ++i) {
    document.AddField(i == 0 ? label : "", sentences[i]);
  }
}

}  // namespace

ExitCode Certificate::Outcome() const {
  if (!invalid.empty()) return ExitCode::kInvalid;
  if (!differences.empty()) return ExitCode::kFail;
  return lacking.empty() ? ExitCode::kPass : ExitCode::kInconclusive;
}

Document DocumentOf(const Certificate& certificate) {
  const ExitCode code = certificate.Outcome();
  Document document;
  document.Put("gate",
               certificate.gate == Gate::kRepeat ? "repeat" : "restart");
  document.Put("outcome", OutcomeName(code));
  document.Put("exit_code", static_cast<int64_t>(code));
  document.Put("headline", HeadlineOf(certificate));
  document.Add(document::Line{.text = HeadlineOf(certificate),
                              .hang = 2,
                              .lead = fmt::format("{}  ", OutcomeName(code)),
                              .tone = code == ExitCode::kPass ? Tone::kGood
                                      : code == ExitCode::kInconclusive
                                          ? Tone::kDoubtful
                                          : Tone::kBad});
  std::vector<size_t> places(certificate.runs.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  document.PutEach("runs", places, [&](size_t place) {
    return RunDocument(certificate, place);
  });
  if (certificate.gate == Gate::kRestart) {
    document.Put("restarts", certificate.restarts);
    if (!certificate.restarts.empty()) {
      document.AddField(
          "restarts",
          fmt::format("before step {}{}", Steps(certificate.restarts),
                      certificate.restarts.front() == 0
                          ? " (0: no log says which)"
                          : ""));
    }
  }
  PutSentences(certificate, "invalid", "invalid", certificate.invalid,
               document);
  document.PutEach("differences", certificate.differences,
                   [&](const Difference& difference) {
                     return DifferenceDocument(certificate, difference);
                   });
  PutSentences(certificate, "lacking", "lacking", certificate.lacking,
               document);
  document.PutObject("compared", ComparedDocument(certificate.compared));
  document.Put("not_certified", certificate.uncertified);
  if (!certificate.uncertified.empty()) {
    document.AddField("open",
                      "not certified: " + Listed(certificate.uncertified));
  }
  PutSentences(certificate, "remarks", "remark", certificate.remarks, document);
  const std::string holds = HoldsFor(certificate);
  document.Put("holds_for", holds);
  document.AddField("holds for", holds);
  return document;
}

document::Result ResultOf(const Certificate& certificate) {
  const ExitCode code = certificate.Outcome();
  const BuildInfo build = GetBuildInfo();
  document::Result result{
      .name = certificate.gate == Gate::kRepeat ? "certify repeat"
                                                : "certify restart",
      .file = certificate.runs.empty() ? "" : certificate.runs.front().name,
      .status = StatusOf(code),
      .outcome = OutcomeName(code),
      .exit_code = static_cast<int>(code),
      .headline = HeadlineOf(certificate)};
  result.is_equal = code == ExitCode::kPass;
  result.reasons = code == ExitCode::kPass ? ComparedTexts(certificate.compared)
                                           : ReasonsOf(certificate);
  result.holds_for = {HoldsFor(certificate)};
  result.next = NextOf(certificate);
  result.warnings = certificate.remarks;
  for (const std::string& text : certificate.uncertified) {
    result.warnings.push_back(fmt::format("Not certified: {}.", text));
  }
  result.facts = {{"program", "isoloss " + build.version},
                  {"commit", build.commit}};
  return result;
}

}  // namespace isoloss::certify
