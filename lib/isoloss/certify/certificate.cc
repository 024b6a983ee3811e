#include "isoloss/certify/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "isoloss/certify/sentences.h"

namespace isoloss::certify {
namespace {

using document::Document;
using document::Tone;
using system::ExitCode;

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
    text += fmt::format(", operations of steps {}",
                        StepsText(run.OperationSteps()));
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
  document.Put("outcome", system::OutcomeName(code));
  document.Put("exit_code", static_cast<int64_t>(code));
  document.Put("headline", HeadlineOf(certificate));
  document.Add(
      document::Line{.text = HeadlineOf(certificate),
                     .hang = 2,
                     .lead = fmt::format("{}  ", system::OutcomeName(code)),
                     .tone = code == ExitCode::kPass           ? Tone::kGood
                             : code == ExitCode::kInconclusive ? Tone::kDoubtful
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
          fmt::format("before step {}{}", StepsText(certificate.restarts),
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

}  // namespace isoloss::certify
