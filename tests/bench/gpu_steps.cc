#include <fmt/format.h>

#include <string>
#include <vector>

#include "gpu_figures.h"
#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/cuda/tensor_cores.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/learner.h"
#include "isoloss/train/presets.h"
#include "measure.h"

namespace isoloss::bench {
namespace {

/// Random tokens of one batch of a preset.
struct Batch {
  std::vector<int32_t> tokens, labels, positions;
  std::vector<size_t> ends;

  explicit Batch(const train::Preset& preset) {
    const CounterRng rng(7, 0);
    const size_t length = preset.sequence_length;
    const size_t count = preset.train.sequences_per_batch * length;
    for (size_t t = 0; t < count; ++t) {
      tokens.push_back(static_cast<int32_t>(rng.Below(t, 256)));
      labels.push_back(static_cast<int32_t>(rng.Below(t + 1, 256)));
      positions.push_back(static_cast<int32_t>(t % length));
      if ((t + 1) % length == 0) ends.push_back(t + 1);
    }
  }
  model::TokenBatch view() const {
    return {tokens, labels, positions, ends, ends};
  }
};

/// A preset in training.
class Training {
 public:
  Training(const train::Preset& preset, const precision::Recipe& recipe,
           Executor& executor)
      : batch_(preset),
        mesh_(preset.model.num_experts, executor),
        learner_(preset.model, preset.train, {{1, recipe}}, /*seed=*/1,
                 executor, seams_, mesh_) {}

  train::StepFigures Step() {
    learner_.BeginStep(++step_);
    return learner_.Step(step_, batch_.view(), nullptr);
  }

 private:
  Batch batch_;
  train::Seams seams_;
  expert_parallel::Mesh mesh_;
  train::Learner learner_;
  int64_t step_ = 0;
};

/// Which preset is trained, and how it is judged.
struct Case {
  const char* preset;
  const char* recipe;
  double tokens_per_second;  ///< the bar
  size_t compared_steps;     ///< with the CPU's, which takes its time
  const kernels::Accumulator* accumulator = nullptr;  ///< of linear layers

  precision::Recipe Recipe() const {
    precision::Recipe of = precision::RecipeByName(recipe);
    for (const precision::GemmRole role : precision::kGemmRoles) {
      of.For(role).accumulation.accumulator = accumulator;
    }
    return of;
  }
  std::string name() const {
    return accumulator == nullptr
               ? recipe
               : fmt::format("{} in {}", recipe, accumulator->name);
  }
};

/// Compares the figures of the first steps, which depend on all tensors.
Differences CompareSteps(const Case& kind, Training& on_gpu) {
  Differences differences;
  if (kind.compared_steps == 0) return differences;
  Executor cpu(AvailableProcessors());
  Training on_cpu(train::PresetByName(kind.preset), kind.Recipe(), cpu);
  for (size_t i = 0; i < kind.compared_steps; ++i) {
    const train::StepFigures gpu = on_gpu.Step();
    const train::StepFigures own = on_cpu.Step();
    differences.Compare(std::vector{gpu.loss_nats, gpu.grad_norm},
                        std::vector{own.loss_nats, own.grad_norm});
    differences.Compare(gpu.gradient_squares, own.gradient_squares);
    differences.Compare(gpu.update_ratios, own.update_ratios);
  }
  return differences;
}

/// Returns the median seconds of a step, which ends when the host has its loss.
double SecondsOfStep(Training& training) {
  constexpr int kWarmUps = 2;
  constexpr int kSteps = 9;
  std::vector<double> samples;
  for (int i = 0; i < kWarmUps + kSteps; ++i) {
    const double start = WallSeconds();
    training.Step();
    if (i >= kWarmUps) samples.push_back(WallSeconds() - start);
  }
  return Median(samples);
}

struct Timed {
  Figure figure;
  double seconds = 0.0;
};

Timed TimeSteps(const Case& kind, Executor& gpu) {
  const train::Preset& preset = train::PresetByName(kind.preset);
  const auto tokens = static_cast<double>(preset.train.sequences_per_batch *
                                          preset.sequence_length);
  Timed timed = {
      {fmt::format("steps of {}, {}, tokens/s", kind.preset, kind.name()),
       0.0,
       kind.tokens_per_second,
       "",
       {}}};
  try {
    Training training(preset, kind.Recipe(), gpu);
    timed.figure.differences = CompareSteps(kind, training);
    timed.seconds = SecondsOfStep(training);
    timed.figure.value = tokens / timed.seconds;
    timed.figure.absolute = fmt::format("{:.1f} ms", 1e3 * timed.seconds);
  } catch (const Error& error) {
    // Another figure may still fit into the memory.
    if (error.kind() != ErrorKind::kConfig) throw;
    timed.figure.absolute = error.what();
  }
  return timed;
}

/// Returns the figure of how much longer a step of dsv3-100m takes than
/// another.
Figure RatioOf(const std::string& names, const Timed& step, const Timed& other,
               double bar) {
  return {fmt::format("time of a step of dsv3-100m, {}", names),
          other.seconds > 0 ? step.seconds / other.seconds : 0.0,
          bar,
          "",
          {}};
}

}  // namespace

std::vector<Figure> StepFigures(Executor& gpu) {
  constexpr double kTensorCores = 2.5;  // times as fast as chains
  // A step of dsv3-small is to take 5 ms.
  constexpr Case kSmall = {"dsv3-small", "mxfp8_rceil", 2048 / 5e-3, 3};
  constexpr Case kMx = {"dsv3-100m", "mxfp8_rceil", 120'000, 1};
  constexpr Case kBf16 = {"dsv3-100m", "bf16", 120'000 / 1.05, 1};
  constexpr Case kLarge = {"dsv3-1b", "mxfp8_rceil", 18'000, 0};
  const Timed mx = TimeSteps(kMx, gpu);
  const Timed bf16 = TimeSteps(kBf16, gpu);
  std::vector<Figure> figures = {
      TimeSteps(kSmall, gpu).figure, mx.figure, bf16.figure,
      RatioOf("bf16, of that in mxfp8_rceil", bf16, mx, 1 / 1.05),
      TimeSteps(kLarge, gpu).figure};

  const device::CudaInfo info = device::DescribeCuda(0);
  const kernels::Accumulator* const accumulator =
      device::AccumulatorOfMma(info.major, info.minor);
  if (accumulator == nullptr) return figures;
  Case cores = kMx;
  cores.accumulator = accumulator;
  cores.tokens_per_second *= kTensorCores;
  const Timed on_cores = TimeSteps(cores, gpu);
  figures.push_back(on_cores.figure);
  figures.push_back(
      RatioOf(fmt::format("mxfp8_rceil, of that in {}", accumulator->name), mx,
              on_cores, kTensorCores));
  return figures;
}

}  // namespace isoloss::bench
