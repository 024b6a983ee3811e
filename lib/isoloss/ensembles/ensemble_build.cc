#include "isoloss/ensembles/ensemble_build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/campaign/job_queue.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/campaign/watched_sweep.h"
#include "isoloss/config/writer.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/device/devices.h"
#include "isoloss/ensembles/benign_variants.h"
#include "isoloss/step_checks/precision_probe.h"
#include "isoloss/step_checks/predicted_products.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/runner.h"
#include "isoloss/train/trainer.h"

namespace isoloss::ensembles {
namespace {

namespace fs = std::filesystem;
using runlog::Ensemble;
using runlog::EnsembleKind;
using runlog::EnsembleMember;
using runlog::RunLog;

class EnsembleBuilder {
 public:
  EnsembleBuilder(const EnsemblePlan& plan, const std::atomic<bool>& stop)
      : plan_(plan),
        stop_(stop),
        corpus_(train::LoadCorpusOf(plan.experiment)),
        arm_(train::ArmNamed(plan.experiment, plan.arm)),
        reference_arm_(train::ArmNamed(
            plan.experiment, IsBenign() ? plan.arm : plan.baseline_arm)),
        planned_(Planned(arm_)),
        planned_reference_(Planned(reference_arm_)) {
    if (plan.experiment.parallel.on != device::kCpu) {
      ThrowError(ErrorKind::kConfig,
                 "ensemble: parallel.on is `{}`, but members are made on the "
                 "host, which sums their products in other orders. Use --on "
                 "cpu.",
                 plan.experiment.parallel.on);
    }
    if (!IsBenign()) {
      products_ = step_checks::PredictedProducts(train::ArmRecipe(arm_),
                                                 plan.experiment.model);
    }
  }

  static fs::path MemberPath(const EnsemblePlan& plan, size_t member) {
    return plan.folder / (MemberName(member) + ".h5");
  }
  EnsembleResult Build();
  bool Make(const campaign::RunChoice& only);
  campaign::RunList List() const;

 private:
  bool IsBenign() const { return plan_.kind == EnsembleKind::kBenign; }
  runlog::Provenance Planned(const train::Arm& arm) const {
    return train::DescribePlannedRun(plan_.experiment, arm, plan_.seeds.front(),
                                     corpus_);
  }
  static std::string MemberName(size_t member) {
    return fmt::format("member-{:05}", member + 1);
  }
  fs::path MemberPath(size_t member) const { return MemberPath(plan_, member); }

  void PrepareFolder() const;
  std::string PlanText() const;
  std::vector<size_t> Missing(const campaign::RunChoice& only) const;
  std::string MemberDifference(const Ensemble& file, size_t index) const;
  Ensemble ReadMember(size_t index) const;
  void CheckKept(const campaign::RunChoice& only) const;
  bool MakeReferences(const std::vector<size_t>& missing);
  RunLog TrainEarly(const train::Arm& arm, uint64_t seed, Executor& executor,
                    train::RunHooks hooks) const;
  void MakeMember(size_t member, Executor& executor) const;
  Ensemble Join() const;

  const EnsemblePlan& plan_;
  const std::atomic<bool>& stop_;
  const corpus::Corpus corpus_;
  const train::Arm& arm_;
  const train::Arm& reference_arm_;
  const runlog::Provenance planned_;  // all members have it, but for the seed
  const runlog::Provenance planned_reference_;
  std::map<uint64_t, RunLog> references_;  // by seed; kBenign only
  model::GemmEngine products_;             // kSeeds only
};

// ---- The folder -------------------------------------------------------------

/// Members of one plan must not stand beside members of another. The number of
/// members is not part of the text, since a call may add members later.
std::string EnsembleBuilder::PlanText() const {
  config::Writer plan;
  plan.Text("kind", EnsembleKindName(plan_.kind));
  plan.Integer("steps", plan_.steps);
  plan.Numbers("probe_steps",
               {plan_.probe_steps.begin(), plan_.probe_steps.end()});
  plan.Numbers("seeds", IsBenign() ? plan_.experiment.train.seeds
                                   : std::vector{plan_.seeds.front()});
  plan.Text("program", planned_.tool_version);
  plan.Text("commit", planned_.commit);
  plan.Text("corpus", planned_.corpus_digest);
  plan.Text("configuration", plan_.experiment.ConfigText());
  for (const auto& [name, arm] :
       {std::pair("arm", &planned_), {"reference", &planned_reference_}}) {
    plan.Section(name);
    plan.Text("name", arm->arm);
    plan.Text("recipe", arm->recipe);
    plan.Text("exchange", arm->exchange);
    plan.Text("numerics", arm->numerics_digest);
    plan.Text("resolved_recipe", arm->resolved_recipe);
  }
  return plan.text();
}

void EnsembleBuilder::PrepareFolder() const {
  std::error_code error;
  fs::create_directories(plan_.folder, error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder for finished members can't be made: {}. Choose "
               "another --out.",
               plan_.folder.string(), error.message());
  }
  const fs::path path = plan_.folder / campaign::kPlanFile;
  const std::string plan = PlanText();
  if (!fs::exists(path)) {
    WriteFileAtomically(path, plan);
    return;
  }
  const std::string difference = campaign::PlanDifference(path, plan);
  if (difference.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it holds members of another plan, which differs in {} (see "
             "plan.toml), but all members of an ensemble are of one. Remove "
             "it, or give another --out.",
             plan_.folder.string(), difference);
}

std::vector<size_t> EnsembleBuilder::Missing(
    const campaign::RunChoice& only) const {
  std::vector<size_t> missing;
  for (size_t i = 0; i < plan_.runs; ++i) {
    if (only.Has(MemberName(i)) && !fs::exists(MemberPath(i))) {
      missing.push_back(i);
    }
  }
  return missing;
}

/// Says why a file is not the member of that place; "" if it is.
std::string EnsembleBuilder::MemberDifference(const Ensemble& file,
                                              size_t index) const {
  if (file.kind != plan_.kind || file.members.size() != 1) {
    return fmt::format("  {} members of kind {}, but it holds one of kind {}\n",
                       file.members.size(), EnsembleKindName(file.kind),
                       EnsembleKindName(plan_.kind));
  }
  const EnsembleMember& member = file.members.front();
  const std::string perturbation =
      IsBenign() ? MakeBenignVariant(index, 0).name : runlog::kPredicted;
  std::string difference;
  if (member.perturbation != perturbation) {
    difference += fmt::format("  perturbation: {} before, {} now\n",
                              member.perturbation, perturbation);
  }
  if (const size_t steps = member.steps.step.size();
      static_cast<int64_t>(steps) != plan_.steps) {
    difference +=
        fmt::format("  steps: {} before, {} now\n", steps, plan_.steps);
  }
  const auto compare = [&](const runlog::Provenance& kept,
                           runlog::Provenance planned) {
    planned.seed = static_cast<int64_t>(plan_.seeds[index]);
    difference += train::RunDifference(kept, planned) +
                  train::LogDifference(kept, planned);
  };
  compare(file.provenance, planned_);
  compare(file.reference_provenance, planned_reference_);
  return difference;
}

/// Reads a finished member and checks that it belongs to the plan.
Ensemble EnsembleBuilder::ReadMember(size_t index) const {
  const fs::path path = MemberPath(index);
  Ensemble file;
  try {
    file = runlog::ReadEnsemble(path);
  } catch (const Error& error) {
    ThrowError(error.kind(),
               "{} It is one member of an ensemble: remove it, then the same "
               "command makes it again.",
               error.what());
  }
  const std::string difference = MemberDifference(file, index);
  if (difference.empty()) return file;
  ThrowError(
      ErrorKind::kConfig,
      "{}: it is a member of another plan. Remove it, then the same command "
      "makes it again. What differs:\n{}",
      path.string(), difference);
}

/// Errors come before hours of training rather than after them.
void EnsembleBuilder::CheckKept(const campaign::RunChoice& only) const {
  for (size_t i = 0; i < plan_.runs; ++i) {
    if (only.Has(MemberName(i)) && fs::exists(MemberPath(i))) ReadMember(i);
  }
}

// ---- One member -------------------------------------------------------------

/// Trains the first steps of a run whose schedule has all steps.
RunLog EnsembleBuilder::TrainEarly(const train::Arm& arm, uint64_t seed,
                                   Executor& executor,
                                   train::RunHooks hooks) const {
  std::atomic<bool> ended{false};
  hooks.on_step =
      [&, inner = std::move(hooks.on_step)](const runlog::StepRow& row) {
        if (inner) inner(row);
        ended.store(row.step >= plan_.steps || stop_.load());
      };
  hooks.stop = &ended;
  return train::TrainRun(plan_.experiment, arm, seed, corpus_, executor, hooks);
}

bool IsWhole(const RunLog& log, int64_t steps) {
  return static_cast<int64_t>(log.steps.step.size()) >= steps;
}

/// Only good runs may set a limit.
void RequireFinite(const RunLog& log, const std::string& what) {
  for (size_t i = 0; i < log.steps.step.size(); ++i) {
    if (std::isfinite(log.steps.loss_nats[i]) &&
        std::isfinite(log.steps.grad_norm[i])) {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "ensemble: {}, seed {}, is not finite in step {}, but members "
               "are good runs. Correct the experiment.",
               what, log.provenance.seed, log.steps.step[i]);
  }
}

bool EnsembleBuilder::MakeReferences(const std::vector<size_t>& missing) {
  if (!IsBenign()) return true;
  for (const size_t member : missing) references_[plan_.seeds[member]];
  std::vector<RunLog*> logs;
  std::vector<uint64_t> seeds;
  for (auto& [seed, log] : references_) {
    seeds.push_back(seed);
    logs.push_back(&log);
  }
  return campaign::RunJobs("references", logs.size(),
                           campaign::OneThreadEach(logs.size(), plan_.workers),
                           stop_, [&](size_t i, Executor& executor) {
                             *logs[i] = TrainEarly(reference_arm_, seeds[i],
                                                   executor, {});
                           });
}

void EnsembleBuilder::MakeMember(size_t index, Executor& executor) const {
  const uint64_t seed = plan_.seeds[index];
  EnsembleMember member{.seed = static_cast<int64_t>(seed)};
  train::RunHooks hooks;
  if (IsBenign()) {
    BenignVariant variant = MakeBenignVariant(index, seed);
    member.perturbation = variant.name;
    static_cast<train::Seams&>(hooks) = std::move(variant.seams);
  } else {
    // Limits must not come from the code that they are to judge.
    member.perturbation = runlog::kPredicted;
    hooks.gemm_engine = products_;
  }
  const RunLog run = TrainEarly(arm_, seed, executor, hooks);
  const RunLog reference = IsBenign()
                               ? references_.at(seed)
                               : TrainEarly(reference_arm_, seed, executor, {});
  for (const RunLog* log : {&run, &reference}) {
    RequireFinite(*log, IsBenign() ? member.perturbation : log->provenance.arm);
    // A run that a signal ended early is not kept.
    if (!IsWhole(*log, plan_.steps)) return;
  }
  Ensemble single;
  single.kind = plan_.kind;
  single.provenance = run.provenance;
  single.reference_provenance = reference.provenance;
  if (!IsBenign()) {
    step_checks::PrecisionFindings found = step_checks::ProbePrecision(
        plan_.experiment, arm_, reference_arm_, seed, corpus_,
        plan_.probe_steps, executor, hooks);
    single.tensors = std::move(found.tensors);
    member.precision = std::move(found.precision);
    member.routing_flips = std::move(found.routing_flips);
  }
  member.steps = run.steps;
  member.reference_steps = reference.steps;
  member.parameters = run.parameters;
  member.reference_parameters = reference.parameters;
  single.members.push_back(std::move(member));
  runlog::WriteEnsemble(single, MemberPath(index));
}

// ---- All of them ------------------------------------------------------------

Ensemble EnsembleBuilder::Join() const {
  Ensemble joined = ReadMember(0);
  for (size_t i = 1; i < plan_.runs; ++i) {
    Ensemble next = ReadMember(i);
    if (next.tensors != joined.tensors) {
      ThrowError(ErrorKind::kFormat,
                 "{}: it was probed at other tensors than {}. Remove {} and "
                 "run the same command again.",
                 MemberPath(i).string(), MemberPath(0).string(),
                 plan_.folder.string());
    }
    joined.members.push_back(std::move(next.members.front()));
  }
  // These digests belong to the first member only: weights and seeds vary.
  for (runlog::Provenance* p :
       {&joined.provenance, &joined.reference_provenance}) {
    p->initial_weights_digest.clear();
    p->final_weights_digest.clear();
  }
  return joined;
}

campaign::RunList EnsembleBuilder::List() const {
  const std::vector<train::Run> runs = {{&arm_, plan_.seeds.front()},
                                        {&reference_arm_, plan_.seeds.front()}};
  const campaign::ArmRates rates =
      campaign::MeasureArms(plan_.experiment, runs);
  const auto all = static_cast<double>(plan_.experiment.train.steps);
  const double steps_of_arm =
      static_cast<double>(plan_.steps) +
      static_cast<double>(plan_.probe_steps.size()) * campaign::kOracleStepCost;
  const double thread_seconds =
      campaign::ThreadSeconds(plan_.experiment, runs[0], rates) * steps_of_arm /
          all +
      campaign::ThreadSeconds(plan_.experiment, runs[1], rates) *
          static_cast<double>(plan_.steps) / all;
  campaign::RunList list{.folder = plan_.folder, .runs = {}};
  for (size_t i = 0; i < plan_.runs; ++i) {
    list.runs.push_back({.name = MemberName(i),
                         .file = MemberPath(i).filename(),
                         .thread_seconds = thread_seconds});
  }
  return list;
}

bool EnsembleBuilder::Make(const campaign::RunChoice& only) {
  std::vector<std::string> names;
  for (size_t i = 0; i < plan_.runs; ++i) names.push_back(MemberName(i));
  only.Check(names);
  PrepareFolder();
  CheckKept(only);
  const std::vector<size_t> missing = Missing(only);
  return MakeReferences(missing) &&
         campaign::RunJobs(
             "members", missing.size(),
             campaign::OneThreadEach(missing.size(), plan_.workers), stop_,
             [&](size_t i, Executor& executor) {
               MakeMember(missing[i], executor);
             }) &&
         Missing(only).empty();
}

EnsembleResult EnsembleBuilder::Build() {
  const size_t kept = plan_.runs - Missing({}).size();
  if (!Make({})) return {{}, kept, true};
  return {Join(), kept, false};
}

}  // namespace

EnsembleResult BuildEnsemble(const EnsemblePlan& plan,
                             const std::atomic<bool>& stop) {
  return EnsembleBuilder(plan, stop).Build();
}

void RemoveMembers(const EnsemblePlan& plan) {
  std::error_code ignored;
  if (fs::exists(plan.folder / campaign::kSweepFolder, ignored)) return;
  for (size_t i = 0; i < plan.runs; ++i) {
    fs::remove(EnsembleBuilder::MemberPath(plan, i), ignored);
  }
  fs::remove(plan.folder / campaign::kPlanFile, ignored);
  RemoveStaleTemporaries(plan.folder);
  fs::remove(plan.folder, ignored);
}

campaign::RunList ListMembers(const EnsemblePlan& plan) {
  const std::atomic<bool> never{false};
  return EnsembleBuilder(plan, never).List();
}

bool MakeMembers(const EnsemblePlan& plan, const campaign::RunChoice& only,
                 const std::atomic<bool>& stop) {
  return EnsembleBuilder(plan, stop).Make(only);
}

}  // namespace isoloss::ensembles
