#include "isoloss/step_checks/probe_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::step_checks {
namespace {

using formats::kMxBlockSize;

/// Calls edit(matrix) with each matrix of each layer, one per expert. Vectors,
/// the embedding and the head are left out.
template <typename Edit>
void ForEachMatrix(model::ParameterSet& weights, const Edit& edit) {
  for (model::Parameter& parameter : weights.parameters()) {
    if (!parameter.name.starts_with("layers.") || parameter.shape.size() < 2) {
      continue;
    }
    const size_t count = parameter.shape.size() > 2 ? parameter.shape[0] : 1;
    const size_t rows = parameter.values.rows() / count;
    for (size_t i = 0; i < count; ++i) {
      edit(parameter.values.view().Rows(i * rows, rows));
    }
  }
}

void HeatRowAndColumn(const model::ModelConfig& /*config*/,
                      model::ParameterSet& weights) {
  constexpr float kHeat = 0x1p12f;
  ForEachMatrix(weights, [](MatrixView<float> matrix) {
    const size_t row = matrix.rows() / 3;
    const size_t column = std::min(matrix.cols() / 2 + 1, matrix.cols() - 1);
    for (size_t j = 0; j < matrix.cols(); ++j) matrix(row, j) *= kHeat;
    for (size_t i = 0; i < matrix.rows(); ++i) {
      if (i != row) matrix(i, column) *= kHeat;
    }
  });
}

void ZeroRowAndBlock(const model::ModelConfig& /*config*/,
                     model::ParameterSet& weights) {
  ForEachMatrix(weights, [](MatrixView<float> matrix) {
    std::fill_n(matrix.Row(0), matrix.cols(), 0.0f);
    const size_t block = std::min(kMxBlockSize, matrix.cols());
    if (matrix.rows() > 1) std::fill_n(matrix.Row(1), block, 0.0f);
  });
}

/// Moves `value` by `steps` BF16 numbers away from zero.
float AwayInBf16(float value, int steps) {
  return formats::DecodeBf16(
      static_cast<uint16_t>(formats::EncodeBf16(value) + steps));
}

/// Scales a block so that its largest magnitude is exactly `amax`.
void SetLargest(float* block, size_t size, float amax) {
  float* largest = std::max_element(block, block + size, [](float a, float b) {
    return std::fabs(a) < std::fabs(b);
  });
  const float old = std::fabs(*largest);
  if (!(old > 0.0f)) return;
  // All elements but the largest stay one step below amax, so that rounding
  // cannot pass it.
  const float limit = AwayInBf16(amax, -1);
  for (size_t i = 0; i < size; ++i) {
    block[i] = std::clamp(block[i] / old * amax, -limit, limit);
  }
  *largest = std::copysign(amax, *largest);
}

void SetBlocksToScaleEdges(const model::ModelConfig& /*config*/,
                           model::ParameterSet& weights) {
  ForEachMatrix(weights, [](MatrixView<float> matrix) {
    for (size_t i = 0; i < matrix.rows(); ++i) {
      for (size_t j = 0; j < matrix.cols(); j += kMxBlockSize) {
        // 448 * 2^-13 = 0.055 is about the largest of 32 initial weights.
        const int step = static_cast<int>((i + j / kMxBlockSize) % 3) - 1;
        SetLargest(matrix.Row(i) + j, std::min(kMxBlockSize, matrix.cols() - j),
                   AwayInBf16(448.0f * 0x1p-13f, step));
      }
    }
  });
}

/// Sets each group of four rows to a, -a, a, -a, scaled by 8. Either a or -a
/// scores above a half, so two experts of the group tie. The last two rows are
/// zero. They score a half and come after these experts.
void TieRouterRows(const model::ModelConfig& config,
                   model::ParameterSet& weights) {
  for (model::Parameter& parameter : weights.parameters()) {
    if (!parameter.name.ends_with(".router.gate.weight")) continue;
    const MatrixView<float> gate = parameter.values.view();
    const size_t idle = std::min<size_t>(2, config.num_experts / 2);
    for (size_t e = 0; e < gate.rows(); ++e) {
      const float sign = e % 2 == 0 ? 8.0f : -8.0f;
      const bool is_idle = e + idle >= gate.rows();
      const float* source = gate.Row(e / 4 * 4);
      for (size_t j = 0; j < gate.cols(); ++j) {
        // Row 4 n itself comes first of its group and is scaled last.
        if (e % 4 != 0) gate(e, j) = is_idle ? 0.0f : sign * source[j];
      }
    }
    for (size_t e = 0; e < gate.rows(); e += 4) {
      const bool is_idle = e + idle >= gate.rows();
      for (size_t j = 0; j < gate.cols(); ++j) {
        gate(e, j) = is_idle ? 0.0f : 8.0f * gate(e, j);
      }
    }
  }
}

/// Returns whether a token may have one expert more.
bool HasRoomForAnother(const model::ModelConfig& model) {
  const size_t offered = model.num_expert_groups == 0
                             ? model.num_experts
                             : model.num_experts / model.num_expert_groups *
                                   model.num_limited_groups;
  return model.top_k < offered;
}

/// A row has 4 KiB, which products pack in another way (kernels/pack-inl.h).
/// Sums are longer than a small model's.
constexpr size_t kDeepWidth = 1024;

/// This is wider than the 8 vectors of 16 that a combine adds up at once
/// (kernels/gather_combine.cc), and no multiple of 32.
constexpr size_t kWideModel = 136;

/// Sequences are longer than a block of the attention's queries
/// (model/attention_core.h) and no multiple of it. Experts get no whole number
/// of tokens on average. A replayed routing fits only the sequences and slots
/// of its recording.
void MakeTails(train::Experiment& experiment) {
  model::ModelConfig& model = experiment.model;
  model.moe_hidden_dim += 16;
  model.dense_hidden_dim = std::max(model.dense_hidden_dim + 8, kDeepWidth);
  model.dim = std::max(model.dim + 24, kWideModel);
  if (experiment.routing.mode != train::RoutingMode::kReplay) {
    experiment.data.sequence_length = 99;
    if (HasRoomForAnother(model)) ++model.top_k;
  }
  model::Validate(model, "[model]");
}

/// This is far below the norm of any gradient of the first steps.
constexpr double kClipNorm = 0x1p-6;
/// This is as large as the spread of scores, so that biases decide.
constexpr double kLoadBalanceCoeff = 0.05;

void MakeBiasesLarge(train::Experiment& experiment) {
  experiment.train.load_balance_coeff = kLoadBalanceCoeff;
}

/// Makes groups of two experts, of which a token uses as many as top-k needs.
/// So a group stays out if there are more. If the model has groups, they are
/// removed.
void ToggleExpertGroups(model::ModelConfig& model) {
  if (model.num_expert_groups > 0) {
    model.num_expert_groups = model.num_limited_groups = 0;
    return;
  }
  if (model.num_experts % 2 != 0) return;
  model.num_expert_groups = model.num_experts / 2;
  model.num_limited_groups = (model.top_k + 1) / 2;
}

/// Takes other branches with the same tensors. YaRN stretches some frequencies,
/// leaves some and mixes some, for sequences of any length.
void TakeOtherBranches(train::Experiment& experiment) {
  model::ModelConfig& model = experiment.model;
  const bool softmax = model.score_function == model::ScoreFunction::kSoftmax;
  model.score_function =
      softmax ? model::ScoreFunction::kSigmoid : model::ScoreFunction::kSoftmax;
  model.route_norm = !model.route_norm;
  ToggleExpertGroups(model);
  model.yarn = !model.yarn;
  model.rope_factor = 4.0;
  model.original_seq_len = 4096.0;
  model.beta_fast = 32.0;
  model.beta_slow = 1.0;
  model::Validate(model, "[model]");
  experiment.train.clip_norm = kClipNorm;
  MakeBiasesLarge(experiment);
}

}  // namespace

const std::vector<ProbeCase>& ProbeCases() {
  static const std::vector<ProbeCase> kCases = {
      {"plain", "the experiment as it is"},
      {"hot_row", "a row and a column of each matrix times 2^12", nullptr,
       HeatRowAndColumn},
      {"zero_block", "a row and a block of each matrix are zero", nullptr,
       ZeroRowAndBlock},
      {"scale_edge", "block maxima where a rounded-up scale steps", nullptr,
       SetBlocksToScaleEdges},
      {"router_ties", "experts that tie exactly or that nobody chooses",
       nullptr, TieRouterRows},
      {"exchange", "the experiment as it is, for longer: the exchange alone",
       nullptr, nullptr, ProbeScope::kExchange},
      {"tails", "sizes that 32 does not divide, three threads", MakeTails,
       nullptr, ProbeScope::kSteps, 3},
      {"branches",
       "the other kind of scores, expert groups, positions; clipping",
       TakeOtherBranches, nullptr},
      {"evaluation", "held-out losses, of sequences that are trained on",
       MakeBiasesLarge, nullptr, ProbeScope::kEvaluation},
  };
  return kCases;
}

const ProbeCase& ProbeCaseByName(const std::string& name) {
  std::vector<std::string> names;
  for (const ProbeCase& probe_case : ProbeCases()) {
    if (probe_case.name == name) return probe_case;
    names.push_back(probe_case.name);
  }
  ThrowError(ErrorKind::kConfig, "probe: there is no case `{}`, only {}.{}",
             name, fmt::join(names, ", "), DidYouMean(name, names));
}

}  // namespace isoloss::step_checks
