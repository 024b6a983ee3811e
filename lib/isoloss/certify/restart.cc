#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "isoloss/base/error.h"
#include "isoloss/certify/certificate.h"
#include "isoloss/certify/pair_of_runs.h"
#include "isoloss/certify/restart_causes.h"
#include "isoloss/certify/run_checks.h"
#include "isoloss/train/continuation.h"

namespace isoloss::certify {
namespace {

const std::vector<int64_t>& StepsOf(const RecordedRun& run) {
  return run.log().steps.step;
}

int64_t FirstOf(const RecordedRun& run) {
  return StepsOf(run).empty() ? 0 : StepsOf(run).front();
}

/// Returns the first steps after restarts within one log.
std::vector<int64_t> RestartsIn(const RecordedRun& run) {
  std::vector<int64_t> restarts;
  for (const int64_t step : train::ResumedSteps(run.log())) {
    restarts.push_back(step + 1);  // 0: the event does not say
  }
  return restarts;
}

/// A recorder counts tokens of each part anew; the whole run counts all.
void CountTokensOn(const runlog::RunLog& whole, runlog::RunLog& part) {
  std::vector<int64_t>& seen = part.steps.tokens_seen;
  if (seen.empty() || part.steps.step.empty()) return;
  const int64_t first = part.steps.step.front();
  const auto at = At(whole.steps, whole.steps.tokens_seen, first);
  const auto before = At(whole.steps, whole.steps.tokens_seen, first - 1);
  if (!at || !before || seen.front() == *at) return;
  for (int64_t& tokens : seen) tokens += *before;
}

/// Puts the parts in the order of their steps and names all runs.
void Arrange(Certificate& certificate) {
  std::vector<RecordedRun>& runs = certificate.runs;
  for (const RecordedRun& run : runs) {
    if (!run.logs.empty() && !StepsOf(run).empty()) continue;
    ThrowError(ErrorKind::kConfig,
               "certify restart: {} has no log with steps, but each part needs "
               "one. Give the log beside it.",
               run.name);
  }
  std::stable_sort(runs.begin() + 1, runs.end(),
                   [](const RecordedRun& a, const RecordedRun& b) {
                     return FirstOf(a) < FirstOf(b);
                   });
  certificate.names.emplace_back("the whole run");
  for (size_t i = 1; i < runs.size(); ++i) {
    certificate.names.push_back(runs.size() == 2 ? "the resumed run"
                                                 : fmt::format("part {}", i));
    for (auto& [rank, run] : runs[i].logs) {
      const auto whole = runs[0].logs.find(rank);
      if (whole != runs[0].logs.end()) {
        CountTokensOn(whole->second.log, run.log);
      }
    }
  }
}

void FindRestarts(Certificate& certificate) {
  const std::vector<RecordedRun>& runs = certificate.runs;
  std::set<int64_t> restarts;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (FirstOf(runs[i]) > FirstOf(runs[0])) restarts.insert(FirstOf(runs[i]));
    for (const int64_t step : RestartsIn(runs[i])) restarts.insert(step);
  }
  certificate.restarts = {restarts.begin(), restarts.end()};
  if (!RestartsIn(runs[0]).empty() || FirstOf(runs[0]) > FirstOf(runs[1])) {
    certificate.invalid.push_back(fmt::format(
        "{} was resumed itself or begins after a part, but the first run must "
        "be the one that was never interrupted.",
        runs[0].name));
  }
  if (restarts.empty()) {
    certificate.invalid.push_back(fmt::format(
        "Nothing shows a restart: no part begins after step {}, and no log has "
        "an event `resume`. Record the resumed part with first_step=.",
        FirstOf(runs[0])));
  }
}

/// Every step from the first part on must be in a part.
void CheckCoverage(Certificate& certificate) {
  const std::vector<RecordedRun>& runs = certificate.runs;
  std::set<int64_t> covered;
  for (size_t i = 1; i < runs.size(); ++i) {
    covered.insert(StepsOf(runs[i]).begin(), StepsOf(runs[i]).end());
  }
  std::vector<int64_t> missing;
  int64_t common = 0;
  for (const int64_t step : StepsOf(runs[0])) {
    common += covered.contains(step) ? 1 : 0;
    if (step > *covered.begin() && step < *covered.rbegin() &&
        !covered.contains(step)) {
      missing.push_back(step);
    }
  }
  certificate.compared.steps = common;
  if (!missing.empty()) {
    certificate.lacking.push_back(fmt::format(
        "{} steps are in no part, from step {} on. Give the log of each part.",
        missing.size(), missing.front()));
  }
  if (*covered.rbegin() != StepsOf(runs[0]).back()) {
    certificate.remarks.push_back(
        fmt::format("The whole run ends with step {}, the parts with step {}.",
                    StepsOf(runs[0]).back(), *covered.rbegin()));
  }
}

enum class Handover { kUnknown, kEqual, kDifferent };

/// Compares the weights of a part with those that the part before it left.
Handover WeightsAtRestart(const Certificate& certificate, size_t part) {
  if (part < 2) return Handover::kUnknown;
  const RecordedRun& before = certificate.runs[part - 1];
  const RecordedRun& after = certificate.runs[part];
  Handover found = Handover::kUnknown;
  if (StepsOf(before).back() + 1 != FirstOf(after)) return found;
  for (const auto& [rank, run] : before.logs) {
    const auto next = after.logs.find(rank);
    if (next == after.logs.end()) continue;
    const std::string& left = run.log.provenance.final_weights_digest;
    const std::string& begun =
        next->second.log.provenance.initial_weights_digest;
    if (left.empty() || begun.empty()) return Handover::kUnknown;
    if (left != begun) return Handover::kDifferent;
    found = Handover::kEqual;
  }
  return found;
}

/// Returns the last restart up to that step; 0: there is none.
int64_t RestartBefore(const Certificate& certificate, int64_t step) {
  int64_t restart = 0;
  for (const int64_t each : certificate.restarts) {
    if (each <= step) restart = each;
  }
  return restart;
}

/// Adds what operations of the steps before and after the restart tell.
void CompareRestart(size_t part, std::optional<size_t> found,
                    Certificate& certificate) {
  const int64_t first = FirstOf(certificate.runs[part]);
  // Operations of that step were compared with each other.
  if (std::ranges::count(certificate.compared.operation_steps, first) > 0) {
    return;
  }
  std::vector<Cause> causes;
  for (const size_t before : {size_t{0}, part - 1}) {
    if (!causes.empty()) break;
    causes = CompareStates(certificate.runs[before], certificate.runs[part],
                           first - 1, certificate.names[part]);
  }
  if (causes.empty()) return;
  if (!found) {
    certificate.differences.push_back(
        {.run = part,
         .where = {.step = first, .quantity = "state before the step"}});
    found = certificate.differences.size() - 1;
  }
  AddNew(std::move(causes), certificate.differences[*found].causes);
}

/// Tells what the digests of weights say of the checkpoint.
void JudgeWeights(Handover weights, size_t part, std::optional<size_t> found,
                  Certificate& certificate) {
  if (weights != Handover::kDifferent) return;
  const std::string text =
      fmt::format("{} began with other weights than the part before it left.",
                  certificate.names[part]);
  if (found) {
    std::vector<Cause>& causes = certificate.differences[*found].causes;
    const auto known = std::ranges::find(causes, kWeights, &Cause::kind);
    const std::string more =
        known == causes.end() ? "" : " " + std::move(known->text);
    if (known != causes.end()) causes.erase(known);
    causes.insert(causes.begin(), {kWeights, text + more});
  } else {
    certificate.lacking.push_back(
        text +
        " All later steps are equal, though. Begin the recording after the "
        "checkpoint is loaded.");
  }
}

/// Says which state at the restart was compared.
void AddStates(Handover weights, size_t part, Certificate& certificate) {
  const int64_t first = FirstOf(certificate.runs[part]);
  Compared& compared = certificate.compared;
  compared.has_weights_at_restart |= weights == Handover::kEqual;
  const bool has_states =
      std::ranges::count(compared.operation_steps, first) > 0;
  compared.has_states_at_restart |= has_states;
  if (weights == Handover::kUnknown && !has_states) {
    AddOnce(fmt::format("weights at the restart before step {}, but by the "
                        "steps that follow",
                        first),
            certificate.uncertified);
  }
  if (!has_states) {
    AddOnce(fmt::format("states of the optimizer at the restart before step "
                        "{}, but by the steps that follow",
                        first),
            certificate.uncertified);
  }
}

void ComparePart(size_t part, const std::string& recipe, Executor& executor,
                 Certificate& certificate) {
  const bool is_resumed =
      FirstOf(certificate.runs[part]) > FirstOf(certificate.runs[0]);
  const bool is_last = part + 1 == certificate.runs.size();
  const PairQuestion question = {
      .other = part,
      .same_beginning = !is_resumed,
      .lists_states = is_resumed || !RestartsIn(certificate.runs[part]).empty(),
      .checks_end = is_last,
      .recipe = recipe};
  std::optional<size_t> found = ComparePair(question, executor, certificate);
  const Handover weights = WeightsAtRestart(certificate, part);
  if (is_resumed) CompareRestart(part, found, certificate);
  if (!found && !certificate.differences.empty() &&
      certificate.differences.back().run == part) {
    found = certificate.differences.size() - 1;
  }
  JudgeWeights(weights, part, found, certificate);
  if (is_resumed) AddStates(weights, part, certificate);
  if (!found) return;
  Difference& difference = certificate.differences[*found];
  const RecordedRun& resumed = certificate.runs[part];
  const auto log = resumed.logs.find(difference.rank);
  const auto whole = certificate.runs[0].logs.find(difference.rank);
  const bool has_both =
      log != resumed.logs.end() && whole != certificate.runs[0].logs.end();
  AddRestartCauses(
      {.whole = has_both ? whole->second.log : certificate.runs[0].log(),
       .resumed = has_both ? log->second.log : resumed.log(),
       .restart = RestartBefore(certificate, difference.where.step),
       .has_unknown_restart = std::ranges::count(certificate.restarts, 0) > 0,
       .has_equal_weights = weights == Handover::kEqual,
       .name = certificate.names[part]},
      difference);
  const int64_t since =
      difference.where.step - RestartBefore(certificate, difference.where.step);
  const bool knows_weights = weights == Handover::kDifferent;
  FinishCauses(since <= 1 || knows_weights, difference);
}

}  // namespace

Certificate CertifyRestart(const CertifyRequest& request, Executor& executor) {
  Certificate certificate = {.gate = Gate::kRestart,
                             .runs = ReadRecordedRuns(request.paths)};
  if (certificate.runs.size() < 2) {
    ThrowError(ErrorKind::kConfig,
               "certify restart: all files are of one run, but the whole run "
               "and the resumed one are needed. Give the log of the whole run "
               "first; files of one run have one name and folder.");
  }
  Arrange(certificate);
  CheckFiles(certificate);
  const bool of_one_kind = certificate.invalid.empty();
  FindRestarts(certificate);
  for (size_t i = 1; i < certificate.runs.size() && of_one_kind; ++i) {
    CheckSettings(i, certificate);
    CheckCopies(i, certificate);
  }
  if (!certificate.invalid.empty()) return certificate;
  const std::string recipe = RecipeOf(request, certificate);
  for (size_t i = 1; i < certificate.runs.size(); ++i) {
    ComparePart(i, recipe, executor, certificate);
  }
  CheckCoverage(certificate);
  CheckEnded(certificate);
  return certificate;
}

}  // namespace isoloss::certify
