#include "isoloss/train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/stopwatch.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/expert_parallel/replica_check.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/run_lock.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/logged_learner.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/step_columns.h"
#include "isoloss/train/training_state.h"

namespace isoloss::train {
namespace {

using Clock = std::chrono::steady_clock;

/// A run is here before the evaluation of the initial weights, which counts as
/// step 0.
constexpr int64_t kNothing = -1;

probes::ProbeOptions ProbeOptionsOf(const Experiment& experiment,
                                    const Arm& arm,
                                    const std::optional<RunFiles>& files) {
  const LogConfig& log = experiment.log;
  probes::ProbeOptions options;
  options.statistics = {log.statistics_first, log.statistics_every};
  options.statistics_tensors = log.statistics_tensors;
  options.digests = {log.digests_first, log.digests_every};
  if (files) {
    options.dump_tensors = log.dump_tensors;
    options.dump_steps.assign(log.dump_steps.begin(), log.dump_steps.end());
    options.dump_folder = files->paths.folder / runlog::kDumpFolder;
    options.run_name = files->paths.name;
    if (!log.dump_tensors.empty()) {
      options.graph = DescribeModel(experiment, arm);
    }
  }
  return options;
}

std::string DescribeMeshOf(const runlog::Provenance& p) {
  return fmt::format(
      "{} ranks on nodes of {}, copies of each expert: {}, transport: {}",
      p.ranks, p.ranks_per_node, p.expert_data_parallel,
      p.transport == "none" ? "none" : "yes");
}

/// Runs the steps of a LoggedLearner, one after the next, and keeps their
/// results.
class Trainer {
 public:
  Trainer(const Experiment& experiment, const Arm& arm, uint64_t seed,
          const corpus::Corpus& corpus, Executor& executor,
          const RunHooks& hooks, const std::optional<RunFiles>& files,
          expert_parallel::Mesh& mesh)
      : config_(experiment.model),
        steps_(experiment.train.steps),
        log_(experiment.log),
        hooks_(hooks),
        files_(files),
        mesh_(mesh),
        learner_(experiment, arm, seed, corpus, executor, hooks,
                 ProbeOptionsOf(experiment, arm, files), mesh) {}

  runlog::RunLog Run();

 private:
  /// A process has one of these wishes after a step; the strongest wish comes
  /// true.
  enum class Wish : uint64_t { kGoOn, kCheckpoint, kStop };

  // These functions start a run, from nothing or from the files on disk.
  void AgreeOn(const Continuation& found);
  int64_t Begin(Continuation found);
  void OpenRecorder(Continuation& found);

  void RequireSamePerturbation(const runlog::RunLog& recorded) const;
  void CheckMesh(const runlog::Provenance& before);

  void Keep(int64_t step, runlog::RunLog& rows);
  void AddEvent(const std::string& kind, const std::string& text);
  void Announce();
  void AddLastEvent(const std::string& kind, const std::string& text);
  Wish Agree(int64_t step);
  bool KeepsCheckpoints() const { return files_ && !files_->origin; }
  void SaveCheckpoint(int64_t step);

  // A run is ended by these functions.
  runlog::RunLog Whole(runlog::RunLog log);
  runlog::RunLog Finish(int64_t step);
  runlog::RunLog Interrupt(int64_t step);
  runlog::RunLog Abort(int64_t step, runlog::RunLog& rows);
  runlog::RunLog End(bool complete);

  const model::ModelConfig& config_;
  const int64_t steps_;
  const LogConfig& log_;
  const RunHooks& hooks_;
  const std::optional<RunFiles>& files_;
  expert_parallel::Mesh& mesh_;
  LoggedLearner learner_;
  std::optional<runlog::RunLock> lock_;
  std::optional<runlog::Recorder> recorder_;
  size_t announced_ = 0;  // events
  bool keeps_exchange_ = true;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_checkpoint_ = begin_;
};

void Trainer::AddEvent(const std::string& kind, const std::string& text) {
  recorder_->AddEvent(kind, text);
  Announce();
}

/// Tells the caller of events that are new: the recorder adds its own.
void Trainer::Announce() {
  const std::vector<runlog::Event>& events = recorder_->log().events;
  for (; announced_ < events.size(); ++announced_) {
    if (hooks_.on_event) hooks_.on_event(events[announced_]);
  }
}

/// Makes all processes go on from the same place. No process changes a file
/// before all have read the files.
void Trainer::AgreeOn(const Continuation& found) {
  const int64_t step = found.whole ? steps_ : found.step();
  const uint64_t state =
      found.checkpoint ? found.checkpoint->state_digest() : 0;
  Digest digest;
  digest.Update(&step, sizeof(step));
  digest.Update(&state, sizeof(state));
  expert_parallel::CheckReplicas(mesh_, digest.Value(),
                                 "checkpoint to resume from");
}

/// Opens the log of a new run, or the log of the run that `found` holds, with
/// its weights. Returns the last step that need not be computed.
int64_t Trainer::Begin(Continuation found) {
  const int64_t step = found.checkpoint ? found.checkpoint->step() : kNothing;
  if (found.checkpoint) {
    learner_.Load(*found.checkpoint);
  }
  OpenRecorder(found);
  return step;
}

void Trainer::OpenRecorder(Continuation& found) {
  if (!files_ || mesh_.process() != 0) {
    recorder_.emplace(learner_.provenance());
  } else if (found.recorded) {
    RequireSamePerturbation(*found.recorded);
    const runlog::Provenance before = found.recorded->provenance;
    recorder_.emplace(files_->paths, learner_.provenance(),
                      std::move(*found.recorded), found.step());
    announced_ = recorder_->log().events.size();
    CheckMesh(before);
  } else {
    recorder_.emplace(files_->paths, learner_.provenance());
  }
  if (lock_) recorder_->OnJournalLost([this] { lock_->Renew(); });
  if (!found.recorded) {
    AddEvent("start", fmt::format("{} steps planned", steps_));
    if (!hooks_.perturbation.empty()) {
      AddEvent(kPerturbationEvent, hooks_.perturbation);
    }
  }
  for (const std::string& note : found.notes) AddEvent("damage", note);
  if (found.recorded) {
    const runlog::Event resume =
        ResumeEvent(found.step(), recorder_->last_step());
    AddEvent(resume.kind, resume.text);
  }
}

/// Compares events, because no digest of a run contains the perturbations of
/// hooks.
void Trainer::RequireSamePerturbation(const runlog::RunLog& recorded) const {
  const std::string before = PerturbationOf(recorded);
  if (before == hooks_.perturbation) return;
  const auto name = [](const std::string& what) {
    return what.empty() ? std::string("nothing") : "`" + what + "`";
  };
  ThrowError(ErrorKind::kConfig,
             "{}: it was begun with {} perturbed, but is to go on with {} "
             "perturbed. Resume it as it was begun, or start it anew with "
             "--restart.",
             files_->paths.Journal().string(), name(before),
             name(hooks_.perturbation));
}

/// No bit of the training depends on the mesh, but all of /exchange does. It
/// describes the first mesh only, and ends where a different mesh goes on.
void Trainer::CheckMesh(const runlog::Provenance& before) {
  for (const runlog::Event& event : recorder_->log().events) {
    if (event.kind == "mesh") keeps_exchange_ = false;
  }
  const std::string was = DescribeMeshOf(before);
  const std::string now = DescribeMeshOf(learner_.provenance());
  if (!keeps_exchange_ || was == now) return;
  keeps_exchange_ = false;
  AddEvent("mesh",
           fmt::format("{} before, {} now: /exchange ends here", was, now));
}

/// Returns what all processes do after a step: the strongest wish of any
/// process.
Trainer::Wish Trainer::Agree(int64_t step) {
  Wish wish = Wish::kGoOn;
  const int64_t every = log_.checkpoint_every;
  const double minutes = log_.checkpoint_minutes;
  if (KeepsCheckpoints() &&
      ((every > 0 && step % every == 0) ||
       (minutes > 0 && SecondsSince(last_checkpoint_) >= minutes * 60))) {
    wish = Wish::kCheckpoint;
  }
  if (hooks_.stop != nullptr && hooks_.stop->load()) wish = Wish::kStop;
  return static_cast<Wish>(
      expert_parallel::Vote(mesh_, static_cast<uint64_t>(wish)));
}

/// Writes down what a step added, then tells the caller.
void Trainer::Keep(int64_t step, runlog::RunLog& rows) {
  if (!keeps_exchange_) rows.exchange = {};
  recorder_->Append(rows);
  Announce();
  recorder_->Refresh(log_.refresh_seconds);
  if (hooks_.on_rows) hooks_.on_rows(rows);
  if (step > 0 && hooks_.on_step) hooks_.on_step(LastRow(rows.steps));
}

void Trainer::SaveCheckpoint(int64_t step) {
  recorder_->SyncJournal();  // of use only with the log up to it
  Announce();
  const std::string unfit = FirstNonFiniteTensor(learner_.State(), mesh_);
  last_checkpoint_ = Clock::now();
  if (!unfit.empty()) {
    AddEvent("damage", fmt::format("no checkpoint at step {}: {} is not finite",
                                   step, unfit));
    return;
  }
  const uint64_t digest = SaveTrainingState(
      step, config_, learner_.State(), mesh_, files_->paths.Checkpoints(),
      CheckpointFacts(recorder_->log().provenance));
  AddEvent("checkpoint",
           fmt::format("step {}, state {}", step, DigestToHex(digest)));
}

/// Adds the run's last event, after an event with the time that listening took,
/// if there was any.
void Trainer::AddLastEvent(const std::string& kind, const std::string& text) {
  const probes::TensorProbe& probe = learner_.probe();
  if (probe.steps() > 0) {
    AddEvent("cost",
             fmt::format("statistics, digests and dumps of tensors at {} steps "
                         "took {:.3g} s, {:.1f} % of the run",
                         probe.steps(), probe.seconds(),
                         100 * probe.seconds() / SecondsSince(begin_)));
  }
  AddEvent(kind, text);
}

runlog::RunLog Trainer::Run() {
  if (files_ && mesh_.process() == 0) {
    lock_.emplace(files_->paths);
    if (lock_->is_inherited()) runlog::RemoveTemporaries(files_->paths);
  }
  Continuation found;
  if (files_ && files_->resume) {
    found = FindContinuation(files_->paths, learner_.provenance());
  } else if (files_ && files_->origin) {
    found = FindOrigin(*files_->origin, learner_.provenance());
  }
  AgreeOn(found);
  if (found.whole) return Whole(std::move(*found.whole));
  for (int64_t step = Begin(std::move(found)) + 1;; ++step) {
    runlog::RunLog rows;
    if (step > 0 && !learner_.Step(step, rows)) return Abort(step, rows);
    const bool last = step >= steps_;
    if (step % log_.eval_every == 0 || last) {
      learner_.Evaluate(step, rows.eval);
      rows.exchange.bytes_by_pair = learner_.bytes_by_pair();
    }
    Keep(step, rows);
    const Wish wish = step > 0 ? Agree(step) : Wish::kGoOn;
    if (last) return Finish(step);
    if (wish != Wish::kGoOn && KeepsCheckpoints()) SaveCheckpoint(step);
    if (wish == Wish::kStop) return Interrupt(step);
  }
}

/// Checks the last update, because no later step would show its effect.
runlog::RunLog Trainer::Finish(int64_t step) {
  const std::string unfit = FirstNonFiniteTensor(learner_.State(), mesh_);
  if (unfit.empty()) {
    AddLastEvent("finish", "all planned steps were run");
  } else {
    AddLastEvent("abort",
                 fmt::format("after step {}: {} is not finite", step, unfit));
  }
  return End(/*complete=*/unfit.empty());
}

/// Returns the log of an earlier execution that did everything.
runlog::RunLog Trainer::Whole(runlog::RunLog log) {
  if (mesh_.process() == 0) runlog::RemoveLiveFiles(files_->paths);
  return log;
}

runlog::RunLog Trainer::Interrupt(int64_t step) {
  AddLastEvent("interrupt", fmt::format("stopped after step {}", step));
  recorder_->Sync();
  return recorder_->log();
}

/// Computes the step once more, now with listeners. Ends the run with an event
/// that says where the first value came from that is not finite.
runlog::RunLog Trainer::Abort(int64_t step, runlog::RunLog& rows) {
  const std::vector<probes::NonFinite> found = learner_.LocateNonFinite(step);
  for (const probes::NonFinite& tensor : found) {
    if (tensor.name.ends_with("_wgrad")) {
      rows.steps.nonfinite_gradients.back() += tensor.count;
    }
  }
  Keep(step, rows);
  AddLastEvent(
      "abort",
      fmt::format("step {}: loss {}, gradient norm {}. First: {}", step,
                  rows.steps.loss_nats.back(), rows.steps.grad_norm.back(),
                  found.empty() ? "no tensor that is listened to"
                                : found[0].Describe(mesh_.processes())));
  return End(/*complete=*/false);
}

/// Ends the run, whether all planned steps were run or its numbers ended it.
runlog::RunLog Trainer::End(bool complete) {
  runlog::Provenance provenance = recorder_->log().provenance;
  provenance.complete = complete;
  provenance.final_weights_digest = DigestToHex(learner_.WeightsDigest());
  recorder_->Finish(provenance);
  return recorder_->log();
}

}  // namespace

void RehearseRun(const Experiment& experiment, const Arm& arm, uint64_t seed,
                 const corpus::Corpus& corpus, Executor& executor,
                 const RunHooks& hooks) {
  const auto mesh = MakeMesh(experiment, arm, /*reason_folder=*/{}, executor,
                             hooks.make_transport);
  mesh->exchanges().Decorate(hooks.decorate_exchange);
  const LoggedLearner learner(experiment, arm, seed, corpus, executor, hooks,
                              ProbeOptionsOf(experiment, arm, std::nullopt),
                              *mesh);
}

runlog::RunLog TrainRun(const Experiment& experiment, const Arm& arm,
                        uint64_t seed, const corpus::Corpus& corpus,
                        Executor& executor, const RunHooks& hooks,
                        const std::optional<RunFiles>& files) {
  const auto mesh =
      MakeMesh(experiment, arm, files ? files->paths.folder.string() : "",
               executor, hooks.make_transport);
  mesh->exchanges().Decorate(hooks.decorate_exchange);
  try {
    return Trainer(experiment, arm, seed, corpus, executor, hooks, files, *mesh)
        .Run();
  } catch (const std::exception& error) {
    // The remaining processes shall not wait for this one.
    if (mesh->transport() != nullptr) mesh->transport()->Abort(error.what());
    throw;
  }
}

}  // namespace isoloss::train
