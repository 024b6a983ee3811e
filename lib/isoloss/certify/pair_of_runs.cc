#include "isoloss/certify/pair_of_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace isoloss::certify {
namespace {

void AddSteps(const std::vector<int64_t>& steps, std::vector<int64_t>& all) {
  for (const int64_t step : steps) {
    const auto place = std::ranges::lower_bound(all, step);
    if (place == all.end() || *place != step) all.insert(place, step);
  }
}

/// Adds counts. Of several runs, the least counts; parts of one run add up.
void Add(const LogPair& pair, int64_t rank, Certificate& certificate) {
  Compared& all = certificate.compared;
  const int64_t digests = all.digests + pair.digests;
  const int64_t last_step = std::max(all.last_step, pair.last_step);
  if (all.quantities.empty()) {
    static_cast<LogCounts&>(all) = pair;
  } else {
    all.steps = std::min(all.steps, pair.steps);
    all.first_step = std::min(all.first_step, pair.first_step);
    std::erase_if(all.quantities, [&](const std::string& quantity) {
      return std::ranges::count(pair.quantities, quantity) == 0;
    });
    const bool adds_up = certificate.gate == Gate::kRestart;
    const auto join = [&](bool& known, bool has) {
      known = adds_up ? known || has : known && has;
    };
    join(all.has_weights_before, pair.has_weights_before);
    join(all.has_weights_after, pair.has_weights_after);
    AddSteps(pair.tensor_steps, all.tensor_steps);
    all.tensors = std::max(all.tensors, pair.tensors);
  }
  all.digests = digests;
  all.last_step = last_step;
  const std::string of =
      rank == kAllRanks ? "" : fmt::format("rank {}: ", rank);
  for (const std::string& text : pair.uncertified) {
    AddOnce(of + text, certificate.uncertified);
  }
  for (const std::string& text : pair.lacking) {
    AddOnce(of + text, certificate.lacking);
  }
}

/// Looks for evidence of the last state: weights, all tensors, or updates.
void CheckEnd(const LogPair& pair, const OperationAnswer& operations,
              const std::string& name, Certificate& certificate) {
  // CheckFiles says that printed digits are too little.
  if (certificate.runs.front().has_printed_log()) return;
  if (operations.last_update != pair.last_step) {
    AddOnce(
        fmt::format("states of the optimizer after step {}", pair.last_step),
        certificate.uncertified);
  }
  AddOnce("random numbers and the place in the data after the last step",
          certificate.uncertified);
  if (pair.has_weights_after || pair.has_tensors_at_end ||
      (operations.last_update == pair.last_step && pair.last_step > 0)) {
    return;
  }
  AddOnce(fmt::format(
              "Of the state after step {} nothing was recorded in both runs "
              "({}): neither digests of the weights, nor digests of all "
              "tensors of that step, nor its updates. Record with "
              "weights=True, or with digests=[{}].",
              pair.last_step, name, pair.last_step),
          certificate.lacking);
}

/// Compares all ranks and returns the earliest difference.
std::optional<Difference> CompareAllLogs(const PairQuestion& question,
                                         std::vector<LogPair>& pairs,
                                         Certificate& certificate) {
  const RecordedRun& first = certificate.runs.front();
  const RecordedRun& other = certificate.runs[question.other];
  std::optional<Difference> earliest;
  for (const auto& [rank, run] : first.logs) {
    const auto partner = other.logs.find(rank);
    if (partner == other.logs.end()) continue;
    const runlog::RunLog& a = run.log;
    const runlog::RunLog& b = partner->second.log;
    LogPair pair = CompareLogs(a, b, question.same_beginning);
    Add(pair, rank, certificate);
    if (pair.first && (!earliest || pair.first->step < earliest->where.step)) {
      earliest = {.run = question.other, .rank = rank, .where = *pair.first};
      earliest->causes =
          StepCauses(a, b, pair.first->step, certificate.names[question.other]);
      if (pair.first->step == 0) {
        earliest->causes = {{kWeights, "The runs begin with other weights."}};
      }
    }
    pairs.push_back(std::move(pair));
  }
  return earliest;
}

OperationAnswer CompareFiles(const PairQuestion& question,
                             const std::optional<Difference>& found,
                             Executor& executor, Certificate& certificate) {
  OperationQuestion of = {
      .recipe = question.recipe,
      .names = {certificate.names[0], certificate.names[question.other]},
      .lists_states = question.lists_states};
  const auto& other = certificate.runs[question.other];
  if (certificate.gate == Gate::kRestart) {
    of.from = other.log().steps.step.front();
    of.until = other.log().steps.step.back();
  }
  if (found) of.until = std::min(of.until, found->where.step);
  OperationAnswer answer =
      CompareOperations(certificate.runs.front(), other, of, executor);
  Compared& all = certificate.compared;
  AddSteps(answer.steps, all.operation_steps);
  all.operations += answer.operations;
  all.operation_tensors += answer.tensors;
  for (const std::string& text : answer.uncertified) {
    AddOnce(text, certificate.uncertified);
  }
  return answer;
}

/// Joins what logs and operations tell of the first difference.
void Join(OperationAnswer answer, const PairQuestion& question,
          std::optional<Difference>& found) {
  if (!answer.first) return;
  if (!found || answer.first->step < found->where.step) {
    std::optional<LogDifference> in_log;
    if (found) in_log = found->where;
    found = {.run = question.other,
             .rank = answer.first->rank,
             .where = {.step = answer.first->step,
                       .quantity = "operations",
                       .name = answer.first->module},
             .in_log = in_log};
  }
  const bool is_data = Has(found->causes, kData);
  found->operation = std::move(answer.first);
  found->other_operations = std::move(answer.others);
  // Other data are the reason of everything else in the step.
  if (is_data) return;
  AddNew(std::move(answer.causes), found->causes);
}

bool IsState(const Cause& cause) {
  constexpr std::string_view kStates[] = {kWeights, kMoments, kStepCounter,
                                          kRouterBias, kScaleHistory};
  return std::ranges::find(kStates, cause.kind) != std::end(kStates);
}

}  // namespace

void AddOnce(const std::string& text, std::vector<std::string>& list) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

std::string RecipeOf(const CertifyRequest& request,
                     const Certificate& certificate) {
  if (!request.recipe.empty()) return request.recipe;
  const RecordedRun& run = certificate.runs.front();
  return run.logs.empty() ? "" : run.log().provenance.recipe;
}

void FinishCauses(bool is_at_restart, Difference& found) {
  const int64_t step = found.where.step;
  if (found.causes.empty()) {
    found.causes.push_back(
        {kUnknown,
         found.has_operations
             ? "All operations that were recorded of that step are equal, so "
               "nothing says why."
             : "No operations of that step were recorded of both runs, so "
               "nothing says why."});
  }
  const Cause& first = found.causes.front();
  if (step == 0) {
    found.next = "load the initial weights, or draw them with one seed";
  } else if (first.kind == kUnrecorded) {
    found.next =
        "show the recorder what lies between (isoloss.observe, "
        "isoloss.linear), and record the step again";
  } else if (IsState(first) && is_at_restart) {
    found.next = "save and load that state with the checkpoint";
  } else if (IsState(first) && found.operation &&
             found.operation->what == OperationDifference::What::kInput &&
             !found.has_operations_before && step > 1) {
    found.next = fmt::format(
        "to see where it began, record the step before, too: dump=[{}, {}]",
        step - 1, step);
  } else if (!found.operation && !found.has_operations && first.kind != kData &&
             first.kind != kSchedule) {
    found.next = fmt::format(
        "to find the operation, record it in both runs: dump=[{}{}]",
        step == 1 ? "" : fmt::format("{}, ", step - 1), step);
  }
}

std::optional<size_t> ComparePair(const PairQuestion& question,
                                  Executor& executor,
                                  Certificate& certificate) {
  std::vector<LogPair> pairs;
  std::optional<Difference> found =
      CompareAllLogs(question, pairs, certificate);
  OperationAnswer answer = CompareFiles(question, found, executor, certificate);
  const OperationAnswer steps = {.steps = answer.steps,
                                 .last_update = answer.last_update};
  Join(std::move(answer), question, found);
  if (!found) {
    if (!question.checks_end) return std::nullopt;
    for (const LogPair& pair : pairs) {
      CheckEnd(pair, steps, certificate.names[question.other], certificate);
    }
    return std::nullopt;
  }
  const int64_t step = found->where.step;
  found->has_operations = std::ranges::count(steps.steps, step) > 0;
  found->has_operations_before = std::ranges::count(steps.steps, step - 1) > 0;
  if (certificate.runs.front().logs.contains(kAllRanks) && found->rank == 0 &&
      certificate.runs.front().log().provenance.ranks == 1) {
    found->rank = kAllRanks;
  }
  certificate.differences.push_back(std::move(*found));
  return certificate.differences.size() - 1;
}

}  // namespace isoloss::certify
