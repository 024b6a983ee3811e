#include "ensemble_build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/base/threads.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/mutants/mutant.h"
#include "isoloss/oracle/precision_probe.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/runner.h"
#include "isoloss/train/trainer.h"
#include "job_queue.h"

namespace isoloss::cli {
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
        corpus_(corpus::LoadCorpus(plan.experiment.corpus_source,
                                   plan.experiment.data.held_out_share)),
        arm_(FindArm(plan.arm)),
        reference_arm_(FindArm(IsBenign() ? plan.arm : plan.baseline_arm)) {}

  EnsembleResult Build();

 private:
  bool IsBenign() const { return plan_.kind == EnsembleKind::kBenign; }
  const train::Arm& FindArm(const std::string& name) const {
    // Refuses a name that is none, and lists the others.
    return *train::PlanRuns(plan_.experiment, name).front().arm;
  }
  fs::path MemberPath(size_t member) const {
    return plan_.folder / fmt::format("member-{:05}.h5", member + 1);
  }

  void PrepareFolder() const;
  std::string PlanText() const;
  std::vector<size_t> Missing() const;
  bool MakeReferences(const std::vector<size_t>& missing);
  RunLog TrainEarly(const train::Arm& arm, uint64_t seed, ThreadTeam& team,
                    train::RunHooks hooks) const;
  void MakeMember(size_t member, ThreadTeam& team) const;
  Ensemble Join() const;

  const EnsemblePlan& plan_;
  const std::atomic<bool>& stop_;
  const corpus::Corpus corpus_;
  const train::Arm& arm_;
  const train::Arm& reference_arm_;
  std::map<uint64_t, RunLog> references_;  // by seed; kBenign only
};

// ---- The folder -------------------------------------------------------------

/// Members of one plan must not stand beside those of another.
std::string EnsembleBuilder::PlanText() const {
  const runlog::Provenance planned = train::DescribePlannedRun(
      plan_.experiment, arm_, plan_.seeds.front(), corpus_);
  const runlog::Provenance reference = train::DescribePlannedRun(
      plan_.experiment, reference_arm_, plan_.seeds.front(), corpus_);
  std::string text = fmt::format(
      "kind = \"{}\"\nsteps = {}\nprobe_steps = [{}]\nseeds = [{}]\n"
      "program = \"{}\"\ncommit = \"{}\"\nconfiguration = \"{}\"\n"
      "corpus = \"{}\"\n",
      EnsembleKindName(plan_.kind), plan_.steps,
      fmt::join(plan_.probe_steps, ", "), fmt::join(plan_.seeds, ", "),
      planned.tool_version, planned.commit, planned.config_digest,
      planned.corpus_digest);
  for (const runlog::Provenance& arm : {planned, reference}) {
    text += fmt::format(
        "[[arm]]\nname = \"{}\"\nrecipe = \"{}\"\nnumerics = "
        "\"{}\"\n",
        arm.arm, arm.recipe, arm.numerics_digest);
  }
  return text;
}

void EnsembleBuilder::PrepareFolder() const {
  fs::create_directories(plan_.folder);
  const fs::path path = plan_.folder / "plan.toml";
  const std::string text = PlanText();
  if (!fs::exists(path)) {
    WriteFileAtomically(path, std::as_bytes(std::span(text)));
    return;
  }
  if (ReadTextFile(path, "Remove the folder.") == text) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it holds members of another plan (program, experiment, kind, "
             "steps or seeds; see plan.toml), but all members of an ensemble "
             "are of one. Remove it, or give another --out.",
             plan_.folder.string());
}

std::vector<size_t> EnsembleBuilder::Missing() const {
  std::vector<size_t> missing;
  for (size_t i = 0; i < plan_.runs; ++i) {
    if (!fs::exists(MemberPath(i))) missing.push_back(i);
  }
  return missing;
}

// ---- One member -------------------------------------------------------------

/// The first steps of a run whose schedule has them all.
RunLog EnsembleBuilder::TrainEarly(const train::Arm& arm, uint64_t seed,
                                   ThreadTeam& team,
                                   train::RunHooks hooks) const {
  std::atomic<bool> ended{false};
  hooks.on_step =
      [&, inner = std::move(hooks.on_step)](const runlog::StepRow& row) {
        if (inner) inner(row);
        ended.store(row.step >= plan_.steps || stop_.load());
      };
  hooks.stop = &ended;
  return train::TrainRun(plan_.experiment, arm, seed, corpus_, team, hooks);
}

bool IsWhole(const RunLog& log, int64_t steps) {
  return static_cast<int64_t>(log.steps.step.size()) >= steps;
}

/// A limit that is set by runs must be set by good ones.
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
  return RunJobs("references", logs.size(), plan_.workers, stop_,
                 [&](size_t i, ThreadTeam& team) {
                   *logs[i] = TrainEarly(reference_arm_, seeds[i], team, {});
                 });
}

void EnsembleBuilder::MakeMember(size_t index, ThreadTeam& team) const {
  const uint64_t seed = plan_.seeds[index];
  EnsembleMember member{.seed = static_cast<int64_t>(seed)};
  train::RunHooks hooks;
  if (IsBenign()) {
    const mutants::Mutant variant = mutants::BenignVariant(index);
    member.perturbation = variant.name;
    hooks = mutants::Plant(variant, plan_.experiment, arm_, seed);
  }
  const RunLog run = TrainEarly(arm_, seed, team, std::move(hooks));
  const RunLog reference = IsBenign()
                               ? references_.at(seed)
                               : TrainEarly(reference_arm_, seed, team, {});
  for (const RunLog* log : {&run, &reference}) {
    RequireFinite(*log, IsBenign() ? member.perturbation : log->provenance.arm);
    // Interrupted: what is not whole is not kept.
    if (!IsWhole(*log, plan_.steps)) return;
  }
  Ensemble single;
  single.kind = plan_.kind;
  single.provenance = run.provenance;
  single.reference_provenance = reference.provenance;
  if (!IsBenign()) {
    oracle::PrecisionFindings found =
        oracle::ProbePrecision(plan_.experiment, arm_, reference_arm_, seed,
                               corpus_, plan_.probe_steps, team);
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
  Ensemble joined = runlog::ReadEnsemble(MemberPath(0));
  for (size_t i = 1; i < plan_.runs; ++i) {
    Ensemble next = runlog::ReadEnsemble(MemberPath(i));
    if (next.tensors != joined.tensors) {
      ThrowError(ErrorKind::kFormat,
                 "{}: it was probed at other tensors than {}. Remove {} and "
                 "run the same command again.",
                 MemberPath(i).string(), MemberPath(0).string(),
                 plan_.folder.string());
    }
    joined.members.push_back(std::move(next.members.front()));
  }
  // Of the plan rather than of its first member: weights and seeds vary.
  for (runlog::Provenance* p :
       {&joined.provenance, &joined.reference_provenance}) {
    p->initial_weights_digest.clear();
    p->final_weights_digest.clear();
  }
  return joined;
}

EnsembleResult EnsembleBuilder::Build() {
  PrepareFolder();
  const std::vector<size_t> missing = Missing();
  const size_t kept = plan_.runs - missing.size();
  const bool done = MakeReferences(missing) &&
                    RunJobs("members", missing.size(), plan_.workers, stop_,
                            [&](size_t i, ThreadTeam& team) {
                              MakeMember(missing[i], team);
                            });
  if (!done || !Missing().empty()) return {{}, kept, true};
  return {Join(), kept, false};
}

}  // namespace

EnsembleResult BuildEnsemble(const EnsemblePlan& plan,
                             const std::atomic<bool>& stop) {
  return EnsembleBuilder(plan, stop).Build();
}

}  // namespace isoloss::cli
