#include "isoloss/treatments/stress_modes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/model/parameters.h"
#include "isoloss/train/batch_shares.h"

namespace isoloss::treatments {
namespace {

/// An outlier becomes this many times as large, which BF16 training survives
/// (64-fold residual channels took all runs down).
constexpr double kResidualGrowth = 16;
constexpr double kGainGrowth = 64;
/// One channel in 32 is an outlier, so that every block of 32 has one.
constexpr size_t kOutlierSpacing = 32;
/// w1 and w3 are multiplied by this when they are aligned.
constexpr float kAlignedScale = 4;

template <int kFactor>
void RaiseRate(train::Experiment& experiment) {
  experiment.train.lr = std::min(1.0, kFactor * experiment.train.lr);
}

void DropDecay(train::Experiment& experiment) {
  experiment.train.weight_decay = 0;
}

void TrainLonger(train::Experiment& experiment) {
  experiment.train.steps *= 10;
  experiment.log.eval_every = experiment.train.steps;
}

/// The model gets four times the layers at half the width.
void MakeDeep(train::Experiment& experiment) {
  model::ModelConfig& model = experiment.model;
  model.n_layers *= 4;
  for (size_t* value : {&model.dim, &model.dense_hidden_dim}) {
    *value = std::max<size_t>(8, *value / 2);
  }
}

/// A batch gets a quarter of the sequences, each four times as long. They may
/// be too few for the experiment's micro-batches.
void MakeLong(train::Experiment& experiment) {
  train::TrainConfig& train = experiment.train;
  const size_t sequences = std::max<size_t>(1, train.sequences_per_batch / 4);
  experiment.data.sequence_length *= train.sequences_per_batch / sequences;
  train.sequences_per_batch = sequences;
  train::TakeWholeBatches(experiment);
  experiment.log.eval_sequences =
      std::max<size_t>(1, experiment.log.eval_sequences / 4);
}

/// Returns the growth of each step that reaches `growth` in the last one.
float GrowthPerStep(const train::Experiment& experiment, double growth) {
  return static_cast<float>(
      portable::Pow(growth, 1.0 / static_cast<double>(experiment.train.steps)));
}

/// Lets channels of the residual stream grow by the columns of the embedding,
/// which writes to it first.
train::RunHooks GrowResidual(const train::Experiment& experiment) {
  const float growth = GrowthPerStep(experiment, kResidualGrowth);
  train::RunHooks hooks;
  hooks.perturbation = "stress residual_outliers";
  hooks.after_update = [growth](int64_t, model::ParameterSet& weights,
                                MatrixView<float>) {
    Matrix<float>& embedding = weights.ByName("tok_embeddings.weight").values;
    for (size_t row = 0; row < embedding.rows(); ++row) {
      for (size_t i = 0; i < embedding.cols(); i += kOutlierSpacing) {
        embedding(row, i) *= growth;
      }
    }
  };
  return hooks;
}

/// Lets gains of all norms grow.
train::RunHooks GrowGains(const train::Experiment& experiment) {
  const float growth = GrowthPerStep(experiment, kGainGrowth);
  train::RunHooks hooks;
  hooks.perturbation = "stress gain_outliers";
  hooks.after_update = [growth](int64_t, model::ParameterSet& weights,
                                MatrixView<float>) {
    for (model::Parameter& parameter : weights.parameters()) {
      if (!std::string_view(parameter.name).ends_with("norm.weight")) continue;
      for (size_t i = 0; i < parameter.values.cols(); i += kOutlierSpacing) {
        parameter.values(0, i) *= growth;
      }
    }
  };
  return hooks;
}

/// Sets w3 = w1 and enlarges both, so that SwiGLU squares its input.
train::RunHooks AlignGates(const train::Experiment&) {
  train::RunHooks hooks;
  hooks.perturbation = "stress aligned_gates";
  hooks.edit_initial_weights = [](model::ParameterSet& weights) {
    for (model::Parameter& parameter : weights.parameters()) {
      const size_t place = parameter.name.rfind("w3");
      if (place == std::string::npos) continue;
      std::string partner = parameter.name;
      partner[place + 1] = '1';
      Matrix<float>& w1 = weights.ByName(partner).values;
      for (size_t row = 0; row < w1.rows(); ++row) {
        for (size_t i = 0; i < w1.cols(); ++i) {
          w1(row, i) *= kAlignedScale;
          parameter.values(row, i) = w1(row, i);
        }
      }
    }
  };
  return hooks;
}

constexpr std::string_view kMxInstabilities =
    "arXiv 2506.20752: MX instabilities come with learning rate and depth";
constexpr std::string_view kOutliers =
    "arXiv 2506.20752, 2505.20524: a block's largest element hides the others";

constexpr std::array kModes = {
    StressMode{"plain", "The experiment as it is", "", nullptr, nullptr},
    StressMode{"lr_3", "3 times the learning rate", kMxInstabilities,
               &RaiseRate<3>, nullptr},
    StressMode{"lr_10", "10 times the learning rate", kMxInstabilities,
               &RaiseRate<10>, nullptr},
    StressMode{"lr_30", "30 times the learning rate", kMxInstabilities,
               &RaiseRate<30>, nullptr},
    StressMode{"no_decay", "No weight decay",
               "arXiv 2309.14322: logits and norms grow without it", &DropDecay,
               nullptr},
    StressMode{"steps_10", "10 times the steps",
               "arXiv 2409.12517, 2411.04330: penalties that come late",
               &TrainLonger, nullptr},
    StressMode{"residual_outliers",
               "One channel in 32 of the embedding grows 16-fold while it "
               "trains",
               kOutliers, nullptr, &GrowResidual},
    StressMode{"gain_outliers",
               "One gain in 32 of every norm grows 64-fold while it trains",
               kOutliers, nullptr, &GrowGains},
    StressMode{"aligned_gates", "w3 begins as w1, and both 4 times as large",
               "arXiv 2409.12517: aligned w1 and w3 make SwiGLU's outliers",
               nullptr, &AlignGates},
    StressMode{"deep", "4 times the layers at half the width", kMxInstabilities,
               &MakeDeep, nullptr},
    StressMode{"long_sequences", "Sequences 4 times as long, a quarter of them",
               "arXiv 2510.04212: biased roundings of attention add up",
               &MakeLong, nullptr},
};

}  // namespace

std::function<train::RunHooks(const train::Run&)> ApplyStress(
    const StressMode& mode, train::Experiment& experiment) {
  if (mode.change != nullptr) mode.change(experiment);
  if (mode.hooks == nullptr) return {};
  // Hooks keep what they need of the experiment.
  const train::RunHooks hooks = mode.hooks(experiment);
  return [hooks](const train::Run&) { return hooks; };
}

std::span<const StressMode> AllStressModes() { return kModes; }

const StressMode& StressModeByName(std::string_view name) {
  const auto found = std::ranges::find(kModes, name, &StressMode::name);
  if (found != kModes.end()) return *found;
  std::vector<std::string_view> names;
  for (const StressMode& mode : kModes) names.push_back(mode.name);
  ThrowError(ErrorKind::kConfig,
             "stress: mode {} was given, but it must be one of {}.", name,
             fmt::join(names, ", "));
}

}  // namespace isoloss::treatments
