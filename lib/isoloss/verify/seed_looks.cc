#include "isoloss/verify/seed_looks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/gate/ladder.h"
#include "isoloss/train/run_description.h"
#include "isoloss/verdicts/judge_arms.h"
#include "isoloss/verdicts/verdict_file.h"

namespace isoloss::verify {
namespace {

namespace fs = std::filesystem;

/// Describes the runs that the experiment would make.
gate::LookRecord RecordOfPlan(const train::Experiment& experiment,
                              const corpus::Corpus& corpus) {
  std::vector<runlog::Provenance> planned;
  for (const train::Arm& arm : experiment.arms) {
    planned.push_back(train::DescribePlannedRun(
        experiment, arm, experiment.train.seeds.front(), corpus));
  }
  std::vector<const runlog::Provenance*> runs;
  for (const runlog::Provenance& provenance : planned) {
    runs.push_back(&provenance);
  }
  return gate::RecordOf(runs);
}

std::vector<int64_t> PlanOf(const train::Experiment& experiment) {
  const std::vector<uint64_t>& looks = experiment.gate.looks;
  return {looks.begin(), looks.end()};
}

void CheckPlan(const fs::path& file, const gate::LookRecord& kept,
               const std::vector<int64_t>& planned) {
  if (planned.empty() || planned == kept.planned || kept.looks.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: gate.looks is [{}], but the {} look{} that it remembers went "
             "by the plan [{}], and a plan made after a look would be made by "
             "its result. Keep that plan, or begin with other seeds in another "
             "folder with --out.",
             file.string(), fmt::join(planned, ", "), kept.looks.size(),
             kept.looks.size() == 1 ? "" : "s", fmt::join(kept.planned, ", "));
}

/// Returns what the folder remembers, if it is of this experiment.
gate::LookRecord ReadOrBegin(const fs::path& file, gate::LookRecord begun,
                             train::Leftovers leftovers) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) return begun;
  gate::LookRecord kept = gate::ReadLooks(file);
  const std::string difference = gate::ExperimentDifference(kept, begun);
  if (difference.empty()) {
    CheckPlan(file, kept, begun.planned);
    kept.arms.merge(begun.arms);
    return kept;
  }
  if (leftovers == train::Leftovers::kDiscard) return begun;
  ThrowError(ErrorKind::kConfig,
             "{}: it remembers looks at another experiment: {}. Choose another "
             "folder with --out, or discard its runs and looks with --restart.",
             file.string(), difference);
}

/// Counts finished pairs in the folder whose seeds are not among those of the
/// plan.
int64_t OtherPairs(const train::Experiment& experiment,
                   const campaign::TrainingPlan& training,
                   const fs::path& folder) {
  std::set<int64_t> seeds;
  for (const auto& file :
       train::FindOtherSeeds(experiment, training.runs, training.corpus, folder)
           .files) {
    seeds.insert(static_cast<int64_t>(file.seed));
  }
  return static_cast<int64_t>(seeds.size());
}

/// Adds seeds, counted up from the largest, until there are `count`.
void Extend(std::vector<uint64_t>& seeds, size_t count) {
  uint64_t last = *std::ranges::max_element(seeds);
  while (seeds.size() < count) seeds.push_back(++last);
}

std::set<const train::Arm*> ArmsIn(const campaign::TrainingPlan& training) {
  std::set<const train::Arm*> arms;
  for (const train::Run& run : training.runs) arms.insert(run.arm);
  return arms;
}

/// Plans all seeds of the experiment, for the arms that the plan has already.
void PlanAgain(const train::Experiment& experiment,
               campaign::TrainingPlan& training) {
  const auto arms = ArmsIn(training);
  training.runs = train::PlanRuns(experiment);
  std::erase_if(training.runs,
                [&](const train::Run& run) { return !arms.contains(run.arm); });
}

/// Returns the seeds of the pairs that are judged, in ascending order.
std::vector<int64_t> SeedsOf(std::span<const compare::Run> runs,
                             const std::string& baseline_arm) {
  std::set<int64_t> seeds;
  for (const compare::Run& run : runs) {
    const runlog::Provenance& p = run.log.provenance;
    if (p.arm == baseline_arm) seeds.insert(p.seed);
  }
  return {seeds.begin(), seeds.end()};
}

/// Returns the folder in which the log or the link to the log lies, however
/// its path is spelt.
fs::path FolderOf(const fs::path& log) {
  std::error_code error;
  const fs::path path = fs::absolute(log).lexically_normal();
  const fs::path folder =
      fs::is_directory(path, error) ? path : path.parent_path();
  fs::path whole = fs::canonical(folder, error);
  return error ? folder : whole;
}

std::optional<gate::Outcome> FinalWindowOutcome(
    const gate::Judgement& judgement) {
  for (const gate::LevelOutcome& level : judgement.levels) {
    if (level.name == gate::LevelName(gate::LevelId::l5_final_window)) {
      return level.outcome;
    }
  }
  return std::nullopt;
}

/// With less than min_seeds an interval can decide nothing, unless an ensemble
/// lent the spread to a single pair.
bool Tested(const gate::Judgement& judgement) {
  const auto pairs = judgement.looks->taken.back().pairs;
  if (pairs > 1 && pairs < judgement.policy.min_seeds) return false;
  return std::ranges::any_of(judgement.checks, [](const gate::Check& check) {
    return check.interval_level.has_value();
  });
}

/// Returns the seeds of the pairs that an object of verdict.json was of.
std::vector<int64_t> JudgedSeeds(const document::Json& verdict) {
  std::vector<int64_t> seeds;
  const document::Json& window = verdict["final_window"];
  if (!window.is_object()) return seeds;
  for (const document::Json& pair : window["seeds"]) {
    seeds.push_back(pair["seed"]);
  }
  std::ranges::sort(seeds);
  return seeds;
}

/// Returns whether the verdict was of runs that compare with this one.
bool IsOfExperiment(const document::Json& verdict,
                    const runlog::Provenance& run,
                    const std::string& baseline_arm) {
  return verdict["baseline"]["arm"] == baseline_arm &&
         verdict["config_digest"] == run.config_digest &&
         verdict["corpus_digest"] == run.corpus_digest;
}

/// Says that the verdict in the folder was an earlier look at some of these
/// pairs. Empty if there is none. A file that is no verdict at all is refused
/// when this verdict is to replace it.
std::string EarlierLook(const fs::path& folder,
                        std::span<const compare::Run> runs,
                        const std::string& baseline_arm) {
  const fs::path file = folder / verdicts::kVerdictFile;
  std::error_code error;
  if (folder.empty() || !fs::exists(fs::symlink_status(file, error))) return {};
  const std::vector<int64_t> seeds = SeedsOf(runs, baseline_arm);
  std::vector<document::Json> earlier;
  try {
    earlier = verdicts::ReadVerdictFile(file);
  } catch (const Error&) {
    return fmt::format("; {} can't be read, so it may have been a look",
                       Printable(file.string()));
  }
  for (const document::Json& verdict : earlier) {
    const std::vector<int64_t> judged = JudgedSeeds(verdict);
    const bool is_look =
        IsOfExperiment(verdict, runs.front().log.provenance, baseline_arm) &&
        !judged.empty() && judged != seeds &&
        std::ranges::includes(seeds, judged);
    if (!is_look) continue;
    return fmt::format(
        "; but {} was of {} of these {} pairs: a look was taken before, and "
        "each look adds up to alpha to the chance of a pass when the "
        "difference lies on the margin",
        Printable(file.string()), judged.size(), seeds.size());
  }
  return {};
}

/// Returns the looks that looks.json beside the logs remembers.
gate::Looks RememberedLooks(const std::vector<fs::path>& logs,
                            std::span<const compare::Run> runs,
                            const std::string& baseline_arm,
                            const gate::Policy& policy) {
  std::set<fs::path> folders;
  for (const fs::path& log : logs) folders.insert(FolderOf(log));
  const fs::path file = *folders.begin() / gate::kLooksFile;
  std::error_code error;
  if (folders.size() > 1) {
    return {.unknown =
                "these logs are from several folders, of which each remembers "
                "its own looks, so that alpha is that of a first and only "
                "look"};
  }
  if (!fs::exists(fs::symlink_status(file, error))) {
    return {.unknown =
                "no looks.json lies beside these logs, so that alpha is "
                "that of a first and only look"};
  }
  const gate::LookRecord record = gate::ReadLooks(file);
  std::vector<const runlog::Provenance*> provenance;
  for (const compare::Run& run : runs) {
    provenance.push_back(&run.log.provenance);
  }
  const std::string difference =
      gate::ExperimentDifference(record, gate::RecordOf(provenance));
  if (!difference.empty()) {
    return {.unknown = fmt::format("{} is of another experiment: {}",
                                   Printable(file.string()), difference)};
  }
  return gate::LooksAt(record, SeedsOf(runs, baseline_arm), policy);
}

}  // namespace

SeedLooks::SeedLooks(train::Experiment& experiment,
                     campaign::TrainingPlan& training, const fs::path& folder,
                     train::Leftovers leftovers)
    : file_(folder / gate::kLooksFile) {
  gate::LookRecord begun = RecordOfPlan(experiment, training.corpus);
  begun.planned = PlanOf(experiment);
  record_ = ReadOrBegin(file_, std::move(begun), leftovers);

  std::vector<uint64_t>& seeds = experiment.train.seeds;
  const size_t asked = seeds.size();
  if (!experiment.gate.looks.empty()) {
    Extend(seeds, experiment.gate.looks.back());
    PlanAgain(experiment, training);
  }
  const int64_t others = OtherPairs(experiment, training, folder);
  const std::vector<int64_t>& planned = record_.planned;
  const int64_t last = planned.empty() ? 0 : planned.back();
  const int64_t total = static_cast<int64_t>(asked) + others;
  if (record_.looks.empty() && !planned.empty() && total > last) {
    ThrowError(ErrorKind::kConfig,
               "{}: train.seeds and the folder have {} seed pairs, but "
               "gate.looks ends at {}. Let it end at {}, or ask for fewer "
               "seeds.",
               folder.string(), total, last, total);
  }
  seeds.resize(std::max<size_t>(
      asked, std::min(seeds.size(), static_cast<size_t>(
                                        std::max<int64_t>(0, last - others)))));
  PlanAgain(experiment, training);

  const size_t arms = ArmsIn(training).size();
  size_t begin = 0;
  const auto end_part = [&](size_t end) {
    if (end <= begin) return;
    const auto runs = training.runs.begin();
    parts_.emplace_back(runs + static_cast<ptrdiff_t>(begin * arms),
                        runs + static_cast<ptrdiff_t>(end * arms));
    pairs_.push_back(static_cast<int64_t>(end) + others);
    begin = end;
  };
  for (const int64_t pairs : planned) {
    if (pairs < others) continue;
    if (pairs == others) {  // all seeds are there, for a look before training
      parts_.emplace_back();
      pairs_.push_back(pairs);
      continue;
    }
    end_part(std::min(static_cast<size_t>(pairs - others), seeds.size()));
  }
  end_part(seeds.size());
}

std::string SeedLooks::Announcement(const gate::Policy& policy) const {
  const std::vector<int64_t> planned =
      record_.planned.empty() ? pairs_ : record_.planned;
  std::string text = fmt::format(
      "L5 tests the mean over seeds after {} seed pairs, alpha {:g} "
      "in all",
      fmt::join(pairs_, ", "), policy.alpha);
  if (!record_.looks.empty()) {
    text += fmt::format(
        "; the folder remembers {} look{}, planned at {}", record_.looks.size(),
        record_.looks.size() == 1 ? "" : "s", fmt::join(planned, ", "));
  }
  if (pairs_.back() > planned.back()) {
    text += fmt::format(
        "; that plan has ended, so more than {} pairs can neither pass nor "
        "fail",
        planned.back());
  }
  return text + ".";
}

gate::Looks SeedLooks::At(std::span<const compare::Run> runs,
                          const gate::Policy& policy) const {
  return gate::LooksAt(record_, SeedsOf(runs, record_.baseline_arm), policy);
}

void SeedLooks::Remember(std::span<const compare::Run> runs,
                         std::span<const gate::Judgement> judgements) {
  if (std::ranges::none_of(judgements, Tested)) return;
  const gate::Judgement& first = judgements.front();
  gate::Look look{.seeds = SeedsOf(runs, record_.baseline_arm),
                  .policy_digest = gate::PolicyDigest(first.policy),
                  .nominal_alpha = first.looks->NominalAlpha(first.policy)};
  if (record_.planned.empty()) {
    record_.planned = {static_cast<int64_t>(look.seeds.size())};
  }
  for (const gate::Judgement& judgement : judgements) {
    const auto outcome = FinalWindowOutcome(judgement);
    if (!outcome) continue;
    look.outcomes[judgement.candidate.arm] = gate::OutcomeName(*outcome);
  }
  const bool is_known = std::ranges::any_of(
      record_.looks,
      [&](const gate::Look& other) { return other.seeds == look.seeds; });
  if (is_known) return;
  record_.looks.push_back(std::move(look));
  gate::WriteLooks(record_, file_);
}

bool IsDecided(const gate::Judgement& judgement) {
  if (judgement.outcome >= gate::Outcome::kFail) return true;
  if (FinalWindowOutcome(judgement) != gate::Outcome::kInconclusive) {
    return true;
  }
  // More seeds don't move an evaluation into the window.
  const auto& window = *judgement.final_window;
  return window.held_out_step && *window.held_out_step < window.first_step;
}

std::string FinalWindowText(const gate::Judgement& judgement) {
  std::string text = judgement.candidate.arm;
  for (const gate::Check& check : judgement.checks) {
    if (!check.interval_level &&
        check.level != gate::LevelName(gate::LevelId::l5_final_window)) {
      continue;
    }
    text += fmt::format(" {} {}", check.name, gate::OutcomeName(check.outcome));
    if (!check.interval_level) continue;
    text += fmt::format(" [{:+.3f} %, {:+.3f} %]", *check.lower, *check.upper);
  }
  return text;
}

gate::Looks LooksBeside(const std::vector<fs::path>& logs,
                        std::span<const compare::Run> runs,
                        const std::string& baseline_arm,
                        const gate::Policy& policy, const fs::path& out) {
  gate::Looks looks = RememberedLooks(logs, runs, baseline_arm, policy);
  if (looks.taken.empty()) {
    const std::string earlier = EarlierLook(out, runs, baseline_arm);
    looks.unknown += earlier;
    looks.unpaid = !earlier.empty();
  }
  return looks;
}

}  // namespace isoloss::verify
