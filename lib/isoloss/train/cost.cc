#include "isoloss/train/cost.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/device/devices.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/presets.h"
#include "isoloss/train/trainer.h"
#include "isoloss/transport/launch.h"

namespace isoloss::train {
namespace {

/// A step of more products than this is not measured: at the slowest speed that
/// was seen, it takes about half a second.
constexpr double kMostMeasuredFlops = 4e9;
/// A model of more parameters is not measured either: making its weights takes
/// about as long, however few of its experts a token meets.
constexpr double kMostMeasuredParameters = 1e7;
/// A GPU may have this many times as much to do.
constexpr double kGpuIsFaster = 100;
constexpr int64_t kMeasuredSteps = 3;
/// Once the measurement has taken this long, no further step begins.
constexpr double kEnoughSeconds = 0.4;

/// Leaves nothing but steps: no statistics, and hardly any evaluation.
void LeaveOutExtras(Experiment& experiment) {
  experiment.train.steps = kMeasuredSteps;
  experiment.train.warmup_steps = 0;
  experiment.train.decay_ratio.reset();
  experiment.log = LogConfig();
  experiment.log.eval_sequences = 1;
  experiment.log.statistics_first = experiment.log.statistics_every = 0;
  experiment.log.digests_first = experiment.log.digests_every = 0;
  experiment.routing = RoutingConfig();
}

/// Returns the experiment's own model on as few sequences as its mesh takes.
Experiment SmallBatch(Experiment experiment) {
  LeaveOutExtras(experiment);
  const size_t length = experiment.data.sequence_length;
  size_t& sequences = experiment.train.sequences_per_batch;
  const size_t units = experiment.parallel.dispatch_units;
  const size_t ranks = experiment.parallel.mesh.ranks;
  sequences = std::min(sequences, units * ((ranks + length - 1) / length));
  experiment.parallel.transport = "loop";
  experiment.parallel.micro_batches = 1;
  return experiment;
}

/// Returns a small model in place of one that is too large to be measured.
Experiment SmallModel(const Experiment& experiment) {
  const Preset& preset = PresetByName("dsv3-nano");
  Experiment small;
  small.path = experiment.path;
  small.name = experiment.name;
  small.arms = experiment.arms;  // the first one's name is the baseline's
  small.model = preset.model;
  small.train = preset.train;
  small.parallel = preset.parallel;
  small.data.sequence_length = preset.sequence_length;
  small.parallel.mesh.experts = preset.model.num_experts;
  LeaveOutExtras(small);
  small.train.sequences_per_batch = 1;
  return small;
}

/// Returns noise; the content of the tokens changes no time but that of
/// routing.
corpus::Corpus SomeCorpus(const Experiment& experiment) {
  constexpr double kHeldOut = 0.3;
  const size_t tokens = 10 * (experiment.data.sequence_length + 1);
  const size_t vocabulary = experiment.model.vocab_size;
  return corpus::LoadCorpus(
      corpus::SyntheticSource{vocabulary, 1, std::min<size_t>(vocabulary, 8),
                              tokens, 0},
      kHeldOut);
}

/// Returns how many runs have room side by side in the devices' memories, at
/// least one on each.
int RunsThatFit(const Experiment& experiment, const device::Device& device) {
  if (device.bytes == 0) return std::numeric_limits<int>::max();
  const double fit =
      static_cast<double>(device.bytes) / EstimatedDeviceBytes(experiment);
  return device.count * std::clamp(static_cast<int>(fit), 1, 4096);
}

/// Says how batches could need less memory, before what else could.
std::string SmallerShares(const ParallelConfig& parallel) {
  if (parallel.whole_batches) {
    return "It takes whole batches, whatever parallel.micro_batches says. "
           "Lower";
  }
  return fmt::format("Raise parallel.micro_batches, which is {}, or lower",
                     parallel.micro_batches);
}

}  // namespace

double TokensPerStep(const Experiment& experiment) {
  return static_cast<double>(experiment.train.sequences_per_batch) *
         static_cast<double>(experiment.data.sequence_length);
}

double MachineBytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

double EstimatedDeviceBytes(const Experiment& experiment) {
  // Rounded operands of a layer's products are about a fifth of the rest; waves
  // of attention and the driver take what is fixed.
  constexpr double kOperands = 1.2;
  constexpr double kFixed = 0x1p30;
  return kOperands * EstimatedBytes(experiment) + kFixed;
}

Crew CrewFor(const Experiment& experiment, size_t runs) {
  const int processes = transport::DetectLaunch().processes;
  const int requested = experiment.parallel.workers;
  int workers = requested > 0 ? requested : AvailableProcessors();
  if (experiment.parallel.on != device::kCpu) {
    const device::Device device = device::FindDevice(experiment.parallel.on);
    return {workers,
            std::min({std::max(workers, device.count), static_cast<int>(runs),
                      RunsThatFit(experiment, device)}),
            device.make_executor};
  }
  if (processes == 1 && experiment.parallel.transport != "mpi") {
    return {workers, std::min(workers, static_cast<int>(runs))};
  }
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (requested == 0 && workers >= online) {
    workers = std::max(1, workers / processes);
  }
  return {workers, 1};
}

/// The log holds columns of 8 bytes, texts and headers; the journal takes as
/// much again.
size_t EstimatedLogBytes(const Experiment& experiment, size_t runs) {
  constexpr size_t kTexts = size_t{256} * 1024;
  const auto steps = static_cast<size_t>(experiment.train.steps);
  const model::ModelConfig& model = experiment.model;
  const size_t layers = model.n_moe_layers();
  const size_t ranks = experiment.parallel.mesh.ranks;
  size_t bytes_per_step =
      128 + layers * (model.num_experts * 16 + 128) + ranks * 24;
  if (experiment.log.routing) {
    bytes_per_step += layers * experiment.train.sequences_per_batch *
                      experiment.data.sequence_length * model.top_k *
                      sizeof(int32_t);
  }
  const size_t evaluations =
      steps / static_cast<size_t>(experiment.log.eval_every) + 2;
  // Histograms are mostly zeros; on disk they nearly vanish.
  const auto tensors =
      static_cast<size_t>(EstimatedTensorRows(experiment) * 320);
  return 2 * runs *
         (kTexts + tensors + ranks * ranks * sizeof(int64_t) +
          steps * bytes_per_step +
          evaluations * experiment.log.eval_sequences * sizeof(double));
}

double EstimatedCheckpointBytes(const Experiment& experiment, size_t runs) {
  const LogConfig& log = experiment.log;
  constexpr double kValuesPerParameter = 3;  // the weight and two moments
  // Side by side are the newest two checkpoints, and the one that is being
  // written.
  double kept = 3;
  if (log.checkpoint_every == 0 && log.checkpoint_minutes == 0) kept = 1;
  const double at_once = std::min(
      static_cast<double>(runs),
      static_cast<double>(log.checkpoint_every > 0
                              ? runs
                              : CrewFor(experiment, runs).side_by_side));
  return kept * at_once * kValuesPerParameter * sizeof(float) *
         EstimatedParameters(experiment.model);
}

void CheckMemory(const Experiment& experiment, const Crew& crew) {
  if (experiment.parallel.on != device::kCpu) {
    const size_t bytes = device::FindDevice(experiment.parallel.on).bytes;
    const double needed = EstimatedDeviceBytes(experiment);
    if (bytes == 0 || needed <= static_cast<double>(bytes)) return;
    ThrowError(
        ErrorKind::kConfig,
        "{}: a run needs about {:.1f} GiB on its GPU, which has {:.1f} GiB. {} "
        "the sizes of [model], train.sequences_per_batch or "
        "data.sequence_length.",
        experiment.path.string(), needed / 0x1p30,
        static_cast<double>(bytes) / 0x1p30,
        SmallerShares(experiment.parallel));
  }
  const double available = MachineBytes();
  const double needed = EstimatedBytes(experiment) * crew.side_by_side;
  if (needed <= available) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} runs side by side need at least {:.1f} GiB, but this "
             "machine has {:.1f} GiB. {} the sizes of [model], "
             "train.sequences_per_batch, data.sequence_length or "
             "parallel.workers.",
             experiment.path.string(), crew.side_by_side, needed / 0x1p30,
             available / 0x1p30, SmallerShares(experiment.parallel));
}

namespace {

/// Returns the arm with the recipe that most of its steps have.
Arm LongestPhase(const Arm& arm, int64_t steps) {
  const std::vector<ArmPhase> phases = PhasesOf(arm, steps);
  const auto length = [&](size_t phase) {
    const bool last = phase + 1 == phases.size();
    return (last ? steps + 1 : phases[phase + 1].first_step) -
           phases[phase].first_step;
  };
  size_t longest = 0;
  for (size_t i = 1; i < phases.size(); ++i) {
    if (length(i) > length(longest)) longest = i;
  }
  return phases[longest].arm;
}

}  // namespace

MeasuredRate MeasureRate(const Experiment& experiment, const Arm& arm) {
  const Experiment own = SmallBatch(experiment);
  const double most = experiment.parallel.on == "gpu" ? kGpuIsFaster : 1;
  const bool small_enough =
      FlopsPerToken(own) * TokensPerStep(own) <= most * kMostMeasuredFlops &&
      EstimatedParameters(own.model) <= most * kMostMeasuredParameters;
  const Experiment measured = small_enough ? own : SmallModel(experiment);
  Arm subject = LongestPhase(arm, experiment.train.steps);
  if (!small_enough) {
    subject = {.name = arm.name, .recipe = subject.recipe};
  }
  Crew alone = CrewFor(experiment, 1);
  alone.workers = alone.side_by_side = 1;
  const std::unique_ptr<Executor> executor = MakeExecutor(alone);
  std::atomic<bool> enough{false};
  double seconds_so_far = 0;
  RunHooks hooks;
  hooks.stop = &enough;
  hooks.on_rows = [&](const runlog::RunLog& rows) {
    for (const double seconds : rows.steps.step_seconds) {
      seconds_so_far += seconds;
    }
    enough.store(seconds_so_far >= kEnoughSeconds);
  };
  const runlog::RunLog log =
      TrainRun(measured, subject, experiment.train.seeds.front(),
               SomeCorpus(measured), *executor, hooks);
  const std::vector<double>& seconds = log.steps.step_seconds;
  const double least = *std::min_element(seconds.begin(), seconds.end());
  return {FlopsPerToken(measured) * TokensPerStep(measured) / least,
          fmt::format("{} steps of {} tokens of {}", seconds.size(),
                      TokensPerStep(measured),
                      small_enough ? "this model" : "dsv3-nano")};
}

double EstimatedThreadSeconds(const Experiment& experiment,
                              double flops_per_second) {
  const double steps = static_cast<double>(experiment.train.steps);
  // Evaluations are made before step 1, at regular intervals, and at the end.
  const double evaluations =
      1 + std::ceil(steps / static_cast<double>(experiment.log.eval_every));
  // Evaluations go forward only, which takes a third of the work.
  const double tokens =
      steps * TokensPerStep(experiment) +
      evaluations / 3 * static_cast<double>(experiment.log.eval_sequences) *
          static_cast<double>(experiment.data.sequence_length);
  return tokens * FlopsPerToken(experiment) / flops_per_second;
}

double EstimatedSeconds(const Experiment& experiment,
                        const std::vector<Run>& runs,
                        const std::vector<double>& flops_per_second) {
  double thread_seconds = 0;
  for (const double rate : flops_per_second) {
    thread_seconds += EstimatedThreadSeconds(experiment, rate);
  }
  const Crew crew = CrewFor(experiment, runs.size());
  // Rates are those of a thread, or of a device.
  const int at_once =
      crew.make_executor
          ? std::min(crew.side_by_side,
                     device::FindDevice(experiment.parallel.on).count)
          : crew.workers;
  // The last round of runs does not fill all places.
  const double rounds = std::ceil(static_cast<double>(runs.size()) /
                                  static_cast<double>(crew.side_by_side));
  const double filled =
      rounds * crew.side_by_side / static_cast<double>(runs.size());
  return thread_seconds * filled / at_once;
}

}  // namespace isoloss::train
