#include "isoloss/certify/operation_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/certify/log_pair.h"
#include "isoloss/operations/operation_file.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::certify {
namespace {

using operations::OperationFile;

OperationFile Read(const RecordedRun& run, const StepAndRank& place) {
  OperationFile file = operations::ReadOperations(run.operations.at(place));
  if (file.step != place.step || file.rank != place.rank) {
    ThrowError(ErrorKind::kFormat,
               "{}: is of step {} and rank {}, but its name says {} and {}. "
               "Give it the name that the recorder gave it.",
               Printable(file.path), file.step, file.rank, place.step,
               place.rank);
  }
  return file;
}

/// Returns whether a file has the name of another run than it says: it was
/// renamed, or belongs to another log.
bool HasOtherName(const OperationFile& file) {
  const std::string name = std::filesystem::path(file.path).filename().string();
  return name.find(".operations-") != std::string::npos && !file.run.empty() &&
         !name.starts_with(file.run + ".rank-");
}

/// Returns whether the file tells another loss of its step than the rank's log.
bool HasOtherLoss(const OperationFile& file, const RecordedRun& run) {
  auto log = run.logs.find(file.rank);
  if (log == run.logs.end() && file.ranks == 1) log = run.logs.find(kAllRanks);
  if (!file.loss_nats || log == run.logs.end()) return false;
  const runlog::StepColumns& steps = log->second.log.steps;
  const auto loss = At(steps, steps.loss_nats, file.step);
  return loss && !runlog::SameBits(*loss, *file.loss_nats);
}

/// Returns what speaks against that a file is of its log; "": nothing.
std::string ForeignTo(const OperationFile& file, const RecordedRun& run) {
  if (HasOtherName(file)) {
    return fmt::format("it says that it is of run `{}`", Printable(file.run));
  }
  return HasOtherLoss(file, run) ? "its loss is not that of the log" : "";
}

/// Returns whether both files tell the same place in a layout.
bool HaveSamePlace(const OperationFile& a, const OperationFile& b) {
  return a.ranks == b.ranks && a.mesh == b.mesh &&
         a.coordinate == b.coordinate && a.data_rank == b.data_rank &&
         a.data_ranks == b.data_ranks;
}

/// Adds what speaks against two files. Returns whether something does: then
/// they may be copies, so that they show no last state.
bool AddForeign(const OperationFile& first, const RecordedRun& of_first,
                const OperationFile& other, const RecordedRun& of_other,
                OperationAnswer& answer) {
  const size_t before = answer.uncertified.size();
  for (const auto& [file, run] :
       {std::pair(&first, &of_first), std::pair(&other, &of_other)}) {
    const std::string why = ForeignTo(*file, *run);
    if (why.empty()) continue;
    answer.uncertified.push_back(fmt::format("that {} is of its log, since {}",
                                             Printable(file->path), why));
  }
  if (first.recording && first.recording == other.recording) {
    answer.uncertified.push_back(fmt::format(
        "that {} and {} are of two runs, since one recording wrote both",
        Printable(first.path), Printable(other.path)));
  }
  if (!HaveSamePlace(first, other)) {
    answer.uncertified.push_back(
        fmt::format("that {} and {} are of one place in a parallel layout, "
                    "since they say otherwise",
                    Printable(first.path), Printable(other.path)));
  }
  return answer.uncertified.size() > before;
}

/// Holds a difference with its files, which its pointers need.
struct Found {
  OperationFile first;
  OperationFile other;
  OperationPair pair;
};

/// Finds the last step whose updates were compared, with files of all ranks.
class Updates {
 public:
  void Add(const OperationFile& file) {
    if (file.step != step_) *this = Updates(file.step, last_step_);
    ++ranks_;
    has_any_ |= std::ranges::any_of(file.operations, [](const auto& operation) {
      return operation.Find("parameter_after") != nullptr;
    });
    if (has_any_ && ranks_ == file.ranks) last_step_ = step_;
  }
  int64_t last_step() const { return last_step_; }

  Updates() = default;

 private:
  Updates(int64_t step, int64_t last_step)
      : step_(step), last_step_(last_step) {}

  int64_t step_ = 0;
  int64_t ranks_ = 0;
  int64_t last_step_ = 0;
  bool has_any_ = false;
};

/// Prefers a result to an input, which may be wrong because of another rank.
/// Then the rank counts whose difference comes earlier.
bool TellsMore(const OperationDifference& a, const OperationDifference& b) {
  using What = OperationDifference::What;
  const auto key = [](const OperationDifference& of) {
    return std::pair(of.what != What::kResult, of.place);
  };
  return key(a) < key(b);
}

void AddUnrecorded(const OperationFile& file, OperationAnswer& answer) {
  if (file.unrecorded.empty()) return;
  std::string line = file.unrecorded.substr(0, file.unrecorded.find('\n'));
  answer.uncertified.push_back(Printable(line));
}

/// Names steps whose operations only one of both runs has.
void AddOnlyInOne(const RecordedRun& first, const RecordedRun& other,
                  const OperationQuestion& question, OperationAnswer& answer) {
  std::set<int64_t> steps;
  for (const auto& [run, partner] :
       {std::pair(&first, &other), std::pair(&other, &first)}) {
    for (const auto& [place, path] : run->operations) {
      if (place.step < question.from || place.step > question.until) continue;
      if (!partner->operations.contains(place)) steps.insert(place.step);
    }
  }
  if (steps.empty()) return;
  answer.uncertified.push_back(
      fmt::format("operations of steps {} (of one run or rank only)",
                  fmt::join(steps, ", ")));
}

std::vector<Cause> CausesOf(const Found& found,
                            const OperationQuestion& question,
                            bool before_is_equal, Executor& executor) {
  const OperationDifference& difference = *found.pair.first;
  const OperationFiles files = {
      found.first, found.other, {question.names[0], question.names[1]}};
  std::vector<Cause> causes = StateCauses(files);
  Cause cause = CauseOf(difference, files, question.recipe, executor);
  // Weights that differ before a step spoil what no operation holds, too.
  const bool has_other_weights =
      !causes.empty() && causes.front().kind == kWeights;
  if (cause.kind == kUnrecorded && has_other_weights) cause = causes.front();
  if (!question.lists_states) causes.clear();
  const bool is_told = Has(causes, cause.kind);
  if (before_is_equal && difference.what == OperationDifference::What::kInput &&
      cause.kind != kUnrecorded && cause.kind != kData) {
    cause.text += fmt::format(
        " All that was recorded of step {} is equal, so it was lost or changed "
        "between the steps.",
        difference.step - 1);
  }
  if (!is_told) causes.insert(causes.begin(), std::move(cause));
  return causes;
}

}  // namespace

OperationAnswer CompareOperations(const RecordedRun& first,
                                  const RecordedRun& other,
                                  const OperationQuestion& question,
                                  Executor& executor) {
  OperationAnswer answer;
  std::unique_ptr<Found> worst;
  Updates updates;
  AddOnlyInOne(first, other, question, answer);
  for (const auto& [place, path] : first.operations) {
    if (place.step > question.until) break;
    if (place.step < question.from || !other.operations.contains(place)) {
      continue;
    }
    if (worst != nullptr && worst->first.step < place.step) break;
    auto found = std::make_unique<Found>();
    found->first = Read(first, place);
    found->other = Read(other, place);
    found->pair = Compare(found->first, found->other);
    if (answer.steps.empty() || answer.steps.back() != place.step) {
      answer.steps.push_back(place.step);
    }
    answer.operations += found->pair.operations;
    answer.tensors += found->pair.tensors;
    if (!AddForeign(found->first, first, found->other, other, answer)) {
      updates.Add(found->first);
    }
    answer.last_update = updates.last_step();
    AddUnrecorded(found->first, answer);
    if (found->pair.first &&
        (worst == nullptr ||
         TellsMore(*found->pair.first, *worst->pair.first))) {
      worst = std::move(found);
    }
  }
  if (worst == nullptr) return answer;
  const bool before_is_equal =
      std::ranges::count(answer.steps, worst->first.step - 1) > 0;
  answer.causes = CausesOf(*worst, question, before_is_equal, executor);
  answer.first = std::move(worst->pair.first);
  answer.others = std::move(worst->pair.others);
  answer.first->first = answer.first->other = nullptr;
  return answer;
}

std::vector<Cause> CompareStates(const RecordedRun& first,
                                 const RecordedRun& other, int64_t before,
                                 const std::string& name) {
  for (const auto& [place, path] : first.operations) {
    const StepAndRank next = {before + 1, place.rank};
    if (place.step != before || !other.operations.contains(next)) continue;
    std::vector<Cause> causes =
        CausesBetween(Read(first, place), Read(other, next), name);
    if (!causes.empty()) return causes;
  }
  return {};
}

}  // namespace isoloss::certify
