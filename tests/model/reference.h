// The model of a golden/reference file: its configuration, weights and batch,
// and one training step of it with everything recorded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/model/config.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/tap.h"
#include "isoloss/model/tokens.h"
#include "isoloss/model/transformer.h"
#include "isoloss/precision/recipe.h"
#include "support/h5_file.h"

namespace isoloss::test_support {

inline model::ModelConfig ReadConfig(const H5File& file) {
  const auto size = [&](const char* name) {
    return static_cast<size_t>(file.Attribute<int64_t>(name));
  };
  const auto real = [&](const char* name) {
    return file.Attribute<double>(name);
  };
  return {
      .vocab_size = size("vocab_size"),
      .dim = size("dim"),
      .n_layers = size("n_layers"),
      .n_dense_layers = size("n_dense_layers"),
      .n_heads = size("n_heads"),
      .q_lora_rank = size("q_lora_rank"),
      .kv_lora_rank = size("kv_lora_rank"),
      .qk_nope_head_dim = size("qk_nope_head_dim"),
      .qk_rope_head_dim = size("qk_rope_head_dim"),
      .v_head_dim = size("v_head_dim"),
      .dense_hidden_dim = size("dense_hidden_dim"),
      .moe_hidden_dim = size("moe_hidden_dim"),
      .num_experts = size("num_experts"),
      .num_shared_experts = size("num_shared_experts"),
      .top_k = size("top_k"),
      .num_expert_groups = size("num_expert_groups"),
      .num_limited_groups = size("num_limited_groups"),
      .score_function = size("score_func_sigmoid") != 0
                            ? model::ScoreFunction::kSigmoid
                            : model::ScoreFunction::kSoftmax,
      .route_norm = size("route_norm") != 0,
      .route_scale = real("route_scale"),
      .tied_embeddings = size("tied") != 0,
      .norm_eps = real("norm_eps"),
      .rope_theta = real("rope_theta"),
      .yarn = size("yarn") != 0,
      .rope_factor = real("rope_factor"),
      .beta_fast = real("beta_fast"),
      .beta_slow = real("beta_slow"),
      .original_seq_len = real("original_seq_len"),
      .mscale = real("mscale"),
  };
}

/// Tokens and labels of one batch with the positions and documents that all
/// batches of a file share.
struct ReferenceBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
  std::vector<int32_t> positions;
  std::vector<size_t> ends;

  model::TokenBatch view() const {
    return {tokens, labels, positions, ends, ends};
  }
};

inline ReferenceBatch ReadMainBatch(const H5File& file) {
  ReferenceBatch batch;
  batch.tokens = file.Read<int32_t>("batch/tokens").values;
  batch.labels = file.Read<int32_t>("batch/labels").values;
  batch.positions = file.Read<int32_t>("batch/positions").values;
  const auto offsets = file.Read<uint64_t>("batch/seq_offsets").values;
  batch.ends.assign(offsets.begin() + 1, offsets.end());
  return batch;
}

/// Fills every parameter from `group`; throws if one is missing or has another
/// shape.
inline void ReadParameters(const H5File& file, const std::string& group,
                           model::ParameterSet& parameters) {
  for (model::Parameter& parameter : parameters.parameters()) {
    const auto stored = file.Read<float>(group + "/" + parameter.name);
    if (stored.shape != parameter.shape) {
      throw Error(ErrorKind::kShape, parameter.name + " has another shape");
    }
    std::copy(stored.values.begin(), stored.values.end(),
              parameter.values.data());
  }
}

/// [MoE layers, experts].
inline Matrix<float> ReadExpertBias(const H5File& file,
                                    const model::ModelConfig& config) {
  Matrix<float> bias(config.n_moe_layers(), config.num_experts);
  for (size_t n = 0; n < bias.rows(); ++n) {
    const auto stored = file.Read<float>(
        "buffers/layers." + std::to_string(config.n_dense_layers + n) +
        ".moe.expert_bias_E");
    std::copy(stored.values.begin(), stored.values.end(), bias.Row(n));
  }
  return bias;
}

/// Keeps everything the model announces, densely, by name.
class Recorder : public model::TapSink {
 public:
  void OnTensor(const model::Tensor& tensor) override {
    names.push_back(tensor.Name());
    tensors[names.back()] = Dense(tensor.values);
  }
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t /*first_token*/) override {
    routing[std::string(module)] = Dense(expert_ids);
  }

  std::vector<std::string> names;  ///< in the order of announcement
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, std::vector<int32_t>> routing;

 private:
  template <typename T>
  static std::vector<T> Dense(MatrixView<const T> values) {
    std::vector<T> dense;
    for (size_t row = 0; row < values.rows(); ++row) {
      dense.insert(dense.end(), values.Row(row),
                   values.Row(row) + values.cols());
    }
    return dense;
  }
};

/// One Forward and Backward of a reference file's model on its main batch.
struct ReferenceStep {
  ReferenceStep(const H5File& file, const std::string& recipe, int threads = 1)
      : config(ReadConfig(file)), gradients(config) {
    Executor executor(threads);
    model::Transformer model(config, precision::RecipeByName(recipe), executor);
    model::ParameterSet weights(config);
    ReadParameters(file, "weights", weights);
    model.LoadWeights(weights);
    model.LoadExpertBias(ReadExpertBias(file, config).view());
    const ReferenceBatch batch = ReadMainBatch(file);
    loss = model.Forward(batch.view(), &recorder);
    model.Backward(batch.view(), gradients, &recorder);
    const auto counts = model.tokens_per_expert();
    tokens_per_expert.assign(counts.data(),
                             counts.data() + counts.rows() * counts.cols());
  }

  model::ModelConfig config;
  double loss = 0.0;
  model::ParameterSet gradients;
  std::vector<int64_t> tokens_per_expert;  // [MoE layers, E]
  Recorder recorder;
};

/// ||a - b|| / ||b||; infinite if lengths differ or b is zero and a is not.
template <typename A, typename B>
double RelativeL2(std::span<const A> a, std::span<const B> b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  if (norm == 0.0) return difference == 0.0 ? 0.0 : HUGE_VAL;
  return std::sqrt(difference / norm);
}

}  // namespace isoloss::test_support
