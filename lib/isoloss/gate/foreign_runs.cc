#include "isoloss/gate/foreign_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "isoloss/compare/integrity.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/foreign_curves.h"

namespace isoloss::gate {
namespace {

/// These are kinds of events in a log that was read from another program's. A
/// verdict on the log must show the warnings.
constexpr std::string_view kImported = "import";
constexpr std::string_view kWarning = "warning";

/// Says which facts no run has recorded: "configuration, data, initial
/// weights".
std::string Unrecorded(const std::vector<const compare::Run*>& runs) {
  const auto missing = [&](std::string runlog::Provenance::*field) {
    return std::ranges::all_of(runs, [&](const compare::Run* run) {
      return (run->log.provenance.*field).empty();
    });
  };
  std::vector<std::string> what;
  if (missing(&runlog::Provenance::config_digest)) {
    what.emplace_back("configuration");
  }
  const bool knows_data =
      std::ranges::all_of(runs, [](const compare::Run* run) {
        return !run->log.provenance.corpus_digest.empty() ||
               !run->log.steps.batch_digest.empty();
      });
  if (!knows_data) what.emplace_back("data");
  if (missing(&runlog::Provenance::initial_weights_digest)) {
    what.emplace_back("initial weights");
  }
  if (missing(&runlog::Provenance::resolved_recipe)) {
    what.emplace_back("recipe");
  }
  return fmt::format("{}", fmt::join(what, ", "));
}

/// Says how reading changed the logs; a note that holds of several runs
/// appears once.
std::vector<std::string> ImportNotes(
    const std::vector<const compare::Run*>& runs, std::string_view kind) {
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  for (const compare::Run* run : runs) {
    for (const runlog::Event& event : run->log.events) {
      if (event.kind != kind) continue;
      auto note = std::ranges::find_if(
          notes, [&](const auto& known) { return known.first == event.text; });
      if (note == notes.end()) {
        notes.push_back({event.text, {}});
        note = std::prev(notes.end());
      }
      note->second.push_back(compare::Label(*run));
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [text, labels] : notes) {
    const std::string others =
        labels.size() == 1 ? ""
                           : fmt::format(" and {} more", labels.size() - 1);
    sentences.push_back(fmt::format("{}{}: {}", labels.front(), others, text));
  }
  return sentences;
}

}  // namespace

std::string OriginOf(const compare::Pairing& pairing) {
  std::vector<std::string> formats;
  for (const compare::Run* run : pairing.All()) {
    const std::string& format = run->log.provenance.origin.format;
    if (format.empty() || std::ranges::count(formats, format) != 0) continue;
    formats.push_back(format);
  }
  return fmt::format("{}", fmt::join(formats, ", "));
}

std::string ComparedSteps(const compare::Pairing& pairing) {
  if (pairing.Knows(runlog::Fact::kEveryStep) || pairing.pairs.empty())
    return "";
  const auto& step = pairing.pairs[0].baseline->log.steps.step;
  if (step.empty()) return "";
  return fmt::format("{} value{} of steps {} to {}", step.size(),
                     step.size() == 1 ? "" : "s", step.front(), step.back());
}

std::vector<std::string> ForeignWarnings(const compare::Pairing& pairing) {
  if (pairing.Knows(runlog::Fact::kExperiment)) return {};
  const auto runs = pairing.All();
  std::vector<std::string> warnings = compare::PairWarnings(pairing);
  std::ranges::move(ImportNotes(runs, kWarning), std::back_inserter(warnings));
  std::ranges::move(CurveWarnings(pairing), std::back_inserter(warnings));
  std::ranges::move(compare::NoTrainingWarnings(pairing),
                    std::back_inserter(warnings));
  if (std::string rising = compare::RisingLoss(pairing); !rising.empty()) {
    warnings.push_back(std::move(rising));
  }
  const std::string unrecorded = Unrecorded(runs);
  warnings.push_back(
      unrecorded.empty()
          ? fmt::format("another program trained these runs ({}), of which "
                        "isoloss' rules for its own hold no more than both "
                        "logs tell.",
                        OriginOf(pairing))
          : fmt::format("another program trained these runs ({}), and their "
                        "logs do not tell: {}. That nothing but the declared "
                        "change differs is not checked.",
                        OriginOf(pairing), unrecorded));
  for (const compare::Run* run : runs) {
    const std::string why = compare::WhyNotStepByStep(run->log);
    if (why.empty()) continue;
    warnings.push_back(
        fmt::format("{}: {}. Levels that look at single steps judge nothing.",
                    compare::Label(*run), why));
  }
  std::ranges::move(ImportNotes(runs, kImported), std::back_inserter(warnings));
  return warnings;
}

std::vector<Measure> ForeignMeasures(const compare::Pairing& pairing) {
  std::vector<Measure> measures;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto& baseline = pair.baseline->log.steps;
    const auto& candidate = pair.candidate->log.steps;
    if (baseline.step.empty() || candidate.step.empty()) continue;
    const double gap = compare::PercentDifference(candidate.loss_nats.front(),
                                                  baseline.loss_nats.front());
    measures.push_back(
        {"first_loss_gap", gap, "%",
         fmt::format(
             "step {} of seed {}: rounding alone parts runs that begin with "
             "the same weights and batch, by some 0.001 %",
             baseline.step.front(), pair.seed)});
  }
  return measures;
}

}  // namespace isoloss::gate
