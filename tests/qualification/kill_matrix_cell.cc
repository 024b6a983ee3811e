// One cell: what is planted is trained, probed and judged.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/peer_rules.h"
#include "isoloss/gate/judge.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/writer.h"
#include "isoloss/step_checks/probe.h"
#include "isoloss/train/trainer.h"
#include "isoloss/verify/probe_runs.h"
#include "qualification/kill_matrix_runner.h"

namespace isoloss::qualification {

namespace fs = std::filesystem;

std::vector<CellJob> KillMatrixRunner::Jobs() const {
  std::vector<CellJob> jobs;
  for (const Mutant& mutant : plan_.mutants) {
    for (const uint64_t seed : plan_.seeds) jobs.push_back({&mutant, seed});
  }
  for (size_t i = 0; i < variants_.size(); ++i) {
    jobs.push_back({&variants_[i], BenignSeed(i)});
  }
  return jobs;
}

/// The first step that differs from the unchanged run; 0: none.
int64_t KillMatrixRunner::PartingStep(const CellJob& job,
                                      const runlog::RunLog& log) const {
  if (job.mutant == nullptr) return 0;
  const auto first =
      compare::FirstStepDivergence(UnchangedOf(job.seed).run.log, log);
  return first ? first->step : 0;
}

/// As in the gate that is measured; that of precision asks for no more.
int64_t KillMatrixRunner::PlainSteps(const CellJob& job,
                                     const runlog::RunLog& log) const {
  if (job.mutant == nullptr || plan_.reference) return 0;
  return gate::PlainStepsDue(UnchangedOf(job.seed).run.log, log, plan_.policy);
}

namespace {

Traces Read(const fs::path& run, const fs::path& probe) {
  // By its name alone: an unchanged run may be judged beside itself here.
  return {{run.filename().string(), runlog::ReadRunLog(run)},
          {probe.string(), runlog::ReadProbeLog(probe)}};
}

}  // namespace

/// Trains, probes, and reads back what was written.
Traces KillMatrixRunner::Make(const CellJob& job, Executor& executor) const {
  const auto hooks = [&](const train::Experiment& experiment,
                         const train::Arm& arm, uint64_t seed) {
    return job.mutant == nullptr || !job.mutant->plant
               ? train::RunHooks{}
               : Plant(*job.mutant, experiment, arm, seed);
  };
  const fs::path stem = plan_.folder / "work" / job.Name();
  const fs::path run = stem.string() + ".h5";
  const fs::path probe = stem.string() + ".probe.h5";
  // Each appears only when it is whole.
  if (fs::exists(run) && fs::exists(probe)) return Read(run, probe);
  runlog::RunLog log =
      train::TrainRun(plan_.experiment, plan_.arm, job.seed, corpus_, executor,
                      hooks(plan_.experiment, plan_.arm, job.seed));
  if (job.mutant != nullptr && job.mutant->edit_log) job.mutant->edit_log(log);
  runlog::WriteRunLog(log, run);
  step_checks::ProbeOptions options;
  options.plain_steps = PlainSteps(job, log);
  options.cases = verify::ProbedCases(plan_.policy);
  options.make_hooks = hooks;
  options.reference = plan_.reference ? &*plan_.reference : nullptr;
  runlog::WriteProbeLog(
      step_checks::ProbeArm(plan_.experiment, plan_.arm, job.seed, corpus_,
                            executor, options),
      probe);
  return Read(run, probe);
}

namespace {

bool IsOfSeed(const compare::Run& run, uint64_t seed) {
  return run.log.provenance.seed == static_cast<int64_t>(seed);
}

}  // namespace

const Traces& KillMatrixRunner::UnchangedOf(uint64_t seed) const {
  const auto found =
      std::find_if(unchanged_.begin(), unchanged_.end(),
                   [&](const Traces& t) { return IsOfSeed(t.run, seed); });
  ISOLOSS_ASSERT(found != unchanged_.end());
  return *found;
}

const compare::Run& KillMatrixRunner::BaselineOf(uint64_t seed) const {
  if (!plan_.reference) return UnchangedOf(seed).run;
  const auto found = std::find_if(
      baselines_.begin(), baselines_.end(),
      [&](const compare::Run& run) { return IsOfSeed(run, seed); });
  ISOLOSS_ASSERT(found != baselines_.end());
  return *found;
}

namespace {

/// The first check as severe as the verdict, with its first finding; "" for a
/// pass. Paths in `folder` are nobody's business.
std::string Reason(const gate::Judgement& judgement, const fs::path& folder) {
  if (judgement.outcome == gate::Outcome::kPass) return "";
  const auto check =
      std::find_if(judgement.checks.begin(), judgement.checks.end(),
                   [&](const gate::Check& c) {
                     return c.gates && c.outcome == judgement.outcome;
                   });
  if (check == judgement.checks.end()) return "";
  std::string text = fmt::format(
      "{} {}: {}", check->level, check->name,
      check->findings.empty() ? check->quantity : check->findings.front());
  const std::string prefix = folder.string() + "/";
  for (size_t at = text.find(prefix); at != std::string::npos;
       at = text.find(prefix)) {
    text.erase(at, prefix.size());
  }
  return text;
}

/// The program itself refused: a CI job stops there.
KillCell Refused(uint64_t seed, const std::string& what) {
  return {
      .seed = static_cast<int64_t>(seed),
      .levels =
          std::vector<std::optional<gate::Outcome>>(gate::Ladder().size()),
      .verdict = gate::Outcome::kFail,
      .finding = "the run itself: " + what,
      .peer_accepts = std::vector<bool>(compare::PeerRules().size(), false)};
}

/// Of losses, gradient norms and final weights.
bool BitEqual(const compare::Run& a, const compare::Run& b) {
  const std::string& arm = a.log.provenance.arm;
  gate::Policy exact;
  exact.question = compare::Question::kRegression;
  exact.levels = {std::string(gate::LevelName(gate::LevelId::l1_exact))};
  return gate::Judge(compare::PairBySeed(arm, {&a}, arm, {&b}), exact)
      .bit_equal;
}

}  // namespace

KillCell KillMatrixRunner::JudgeTraces(const CellJob& job,
                                       const Traces& traces) const {
  const compare::Pairing pairing = PairWithBaseline(job.seed, traces.run);
  gate::Evidence evidence{.pairing = &pairing,
                          .candidate_probes = {&traces.probe, 1}};
  if (plan_.ensemble) {
    (plan_.reference ? evidence.seeds : evidence.benign) = &*plan_.ensemble;
  }
  const gate::Judgement judgement =
      gate::Judge(evidence, plan_.policy, {.climb_all = true});

  KillCell cell{.seed = static_cast<int64_t>(job.seed)};
  for (const gate::LevelOutcome& level : judgement.levels) {
    cell.levels.push_back(level.outcome);
  }
  cell.verdict = judgement.outcome;
  cell.bit_equal = BitEqual(UnchangedOf(job.seed).run, traces.run);
  cell.finding = Reason(judgement, plan_.folder / "work");
  cell.loss_nats = traces.run.log.steps.loss_nats;
  const compare::PeerPair curves{BaselineOf(job.seed).log.steps.loss_nats,
                                 traces.run.log.steps.loss_nats};
  for (const compare::PeerRule& rule : compare::PeerRules()) {
    cell.peer_accepts.push_back(rule.accepts(curves));
  }
  cell.first_different_step = PartingStep(job, traces.run.log);
  return cell;
}

KillCell KillMatrixRunner::JudgeJob(const CellJob& job,
                                    Executor& executor) const {
  const auto start = std::chrono::steady_clock::now();
  KillCell cell;
  try {
    cell = JudgeTraces(job, Make(job, executor));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo) throw;  // this machine's, not the bug's
    cell = Refused(job.seed, error.what());
  }
  cell.seconds = SecondsSince(start);
  return cell;
}

}  // namespace isoloss::qualification
