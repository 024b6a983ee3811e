#include "isoloss/step_checks/elementwise_check.h"

#include <cmath>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/step_checks/linear_check.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;
using oracle::Rounded32;

/// Returns the estimate of a function that is within `ulps` units in the last
/// place of `value`. An ulp is at most 2 unit roundoffs of the value. Its error
/// is assumed to be uniform over a third of the bound.
Estimate WithinUlps(double value, double ulps) {
  const double bound =
      ulps * (2.0 * oracle::kUnitRoundoff * std::fabs(value) + oracle::kTiny);
  return {.exact = value,
          .bound = bound,
          .noise = ulps / 3.0 * oracle::Ulp(value) / std::sqrt(3.0)};
}

constexpr double kSigmoidUlps = 3.0;

/// Computes 1 / (1 + e^-z) of z and of -z. It does not overflow and keeps all
/// digits at both ends.
struct Sigmoids {
  explicit Sigmoids(double z) {
    const double power = portable::Exp(-std::fabs(z));
    const double high = 1.0 / (1.0 + power);
    const double low = power / (1.0 + power);
    of_z = z >= 0.0 ? high : low;
    of_minus_z = z >= 0.0 ? low : high;
  }
  double of_z;
  double of_minus_z;
};

Estimate Input(float value) {
  return oracle::Exactly(static_cast<double>(value));
}

/// Returns round(z sigmoid(z)), which a product reads.
template <typename Number>
Number Silu(Grid grid, double z, const Number& sigmoid) {
  return RoundedOnTheWay(grid, Rounded32(sigmoid * z));
}

/// Returns the weights by which w2's operand was multiplied, one per row of a
/// feed-forward's tensors. It is empty if there was no multiplication.
std::vector<float> RowWeights(const StepInputs& inputs,
                              const std::string& name) {
  using expert_parallel::WeightSite;
  if (inputs.mesh.options.weight_site != WeightSite::kBeforeFc2 ||
      !name.ends_with(".routed_experts")) {
    return {};
  }
  const size_t layer = std::stoul(name.substr(sizeof("layers.") - 1));
  return ExpertRowWeights(inputs.record, inputs.config, layer, inputs.mesh);
}

/// Adds the operation's FP32 rounding, unless the tensor's grid is FP32.
template <typename Number>
Number BeforeGrid(Grid grid, const Number& value) {
  return grid == Grid::kBf16 ? Rounded32(value) : value;
}

}  // namespace

std::vector<CopyPlace> CopyPlaces(const model::ModelConfig& config) {
  std::vector<CopyPlace> places = {{"lm_head_activation", "norm_output"},
                                   {"norm_gradient", "lm_head_dgrad"}};
  const auto dense = [&](const std::string& name, const std::string& layer) {
    places.push_back({name + ".w1_activation", layer + ".ffn_norm_output"});
    places.push_back({name + ".w3_activation", layer + ".ffn_norm_output"});
    places.push_back({name + ".w2_gradient", layer + "_gradient"});
  };
  for (size_t n = 0; n < config.n_layers; ++n) {
    const std::string layer = "layers." + std::to_string(n);
    const std::string attention = layer + ".attention";
    const std::string normed = layer + ".attention_norm_output";
    if (config.q_lora_rank == 0) {
      places.push_back({attention + ".wq_activation", normed});
    } else {
      places.push_back({attention + ".wq_a_activation", normed});
      places.push_back(
          {attention + ".wq_b_activation", attention + ".q_norm_output"});
    }
    places.push_back({attention + ".wkv_a_activation", normed});
    places.push_back(
        {attention + ".wkv_b_activation", attention + ".kv_norm_output"});
    places.push_back(
        {attention + ".wo_activation", attention + ".inner_attention_output"});
    places.push_back(
        {layer + ".attention_norm_gradient", attention + ".wkv_a_dgrad"});
    if (config.IsMoeLayer(n)) {
      const std::string moe = layer + ".moe";
      places.push_back(
          {moe + ".router.gate_activation", layer + ".ffn_norm_output"});
      if (config.num_shared_experts > 0) dense(moe + ".shared_experts", layer);
    } else {
      dense(layer + ".feed_forward", layer);
      places.push_back(
          {layer + ".ffn_norm_gradient", layer + ".feed_forward.w3_dgrad"});
    }
  }
  return places;
}

void CheckCopy(const StepInputs& inputs, const CopyPlace& place,
               ReportSink& sink) {
  const MatrixView<const float> copy = inputs.Values(place.name);
  const MatrixView<const float> original = inputs.Values(place.of);
  Comparison comparison(inputs.activations);
  for (size_t i = 0; i < copy.rows(); ++i) {
    comparison.AddExactRow(i, copy.Row(i), original.Row(i), copy.cols());
  }
  sink.Add(place.name, comparison);
}

std::vector<AddPlace> AddPlaces(const model::ModelConfig& config) {
  std::vector<AddPlace> places;
  std::string below = "tok_embeddings";
  for (size_t n = 0; n < config.n_layers; ++n) {
    const std::string layer = "layers." + std::to_string(n);
    const std::string middle = layer + ".attention_residual_output";
    places.push_back(
        {middle, below + "_output", layer + ".attention.wo_output"});
    std::string branch = layer + ".feed_forward.w2_output";
    if (config.IsMoeLayer(n)) {
      branch = layer + ".moe.routed_experts_output";
      if (config.num_shared_experts > 0) {
        const std::string sum = layer + ".moe_output";
        places.push_back(
            {sum, branch, layer + ".moe.shared_experts.w2_output"});
        branch = sum;
      }
    }
    places.push_back({layer + "_output", middle, branch});
    below = layer;
  }
  return places;
}

void CheckAdd(const StepInputs& inputs, const AddPlace& place,
              ReportSink& sink) {
  const MatrixView<const float> sum = inputs.Values(place.sum);
  const MatrixView<const float> x = inputs.Values(place.x);
  const MatrixView<const float> y = inputs.Values(place.y);
  const Grid grid = inputs.activations;
  const oracle::Sample sample = inputs.SampleOf(place.sum);
  Comparison comparison(grid);
  sample.ForEach([&](size_t i, size_t j) {
    comparison.AddResult(i, j, sum(i, j), [&]<typename Number>() {
      const Number left = Input(x(i, j));
      const Number right = Input(y(i, j));
      return BeforeGrid(grid, left + right);
    });
  });
  comparison.AddUnseen(sample);
  sink.Add(place.sum, comparison);
}

std::vector<std::string> FeedForwards(const model::ModelConfig& config) {
  std::vector<std::string> names;
  for (size_t n = 0; n < config.n_layers; ++n) {
    const std::string layer = "layers." + std::to_string(n);
    if (!config.IsMoeLayer(n)) {
      names.push_back(layer + ".feed_forward");
      continue;
    }
    names.push_back(layer + ".moe.routed_experts");
    if (config.num_shared_experts > 0) {
      names.push_back(layer + ".moe.shared_experts");
    }
  }
  return names;
}

void CheckSwigluForward(const StepInputs& inputs, const std::string& name,
                        ReportSink& sink) {
  const MatrixView<const float> gate = inputs.Values(name + ".w1_output");
  const MatrixView<const float> up = inputs.Values(name + ".w3_output");
  const MatrixView<const float> hidden = inputs.Values(name + ".w2_activation");
  const std::vector<float> weights = RowWeights(inputs, name);
  const Grid grid = inputs.activations;
  const oracle::Sample sample = inputs.SampleOf(name + ".w2_activation");
  Comparison comparison(grid);
  sample.ForEach([&](size_t i, size_t j) {
    const auto z = static_cast<double>(gate(i, j));
    const Estimate sigmoid = WithinUlps(Sigmoids(z).of_z, kSigmoidUlps);
    comparison.AddResult(i, j, hidden(i, j), [&]<typename Number>() {
      Number product =
          Silu<Number>(grid, z, sigmoid) * static_cast<double>(up(i, j));
      if (!weights.empty()) {
        product = RoundedOnTheWay(grid, Rounded32(product)) *
                  static_cast<double>(weights[i]);
      }
      return BeforeGrid(grid, product);
    });
  });
  comparison.AddUnseen(sample);
  sink.Add(name + ".w2_activation", comparison);
}

void CheckSwigluBackward(const StepInputs& inputs, const std::string& name,
                         ReportSink& sink) {
  const MatrixView<const float> gate = inputs.Values(name + ".w1_output");
  const MatrixView<const float> up = inputs.Values(name + ".w3_output");
  const MatrixView<const float> dh = inputs.Values(name + ".w2_dgrad");
  const MatrixView<const float> dgate = inputs.Values(name + ".w1_gradient");
  const MatrixView<const float> dup = inputs.Values(name + ".w3_gradient");
  const std::vector<float> weights = RowWeights(inputs, name);
  const Grid grid = inputs.activations;
  Comparison of_gate(grid);
  Comparison of_up(grid);
  const oracle::Sample sample = inputs.SampleOf(name + ".w1_gradient");
  sample.ForEach([&](size_t i, size_t j) {
    const auto z = static_cast<double>(gate(i, j));
    const Sigmoids sigmoids(z);
    const Estimate sigmoid = WithinUlps(sigmoids.of_z, kSigmoidUlps);
    Estimate dhidden = Input(dh(i, j));
    if (!weights.empty()) {
      dhidden = RoundedOnTheWay(
          grid, Rounded32(dhidden * static_cast<double>(weights[i])));
    }
    of_gate.AddResult(i, j, dgate(i, j), [&]<typename Number>() {
      const Number one = oracle::Exactly(1.0);
      const Number q = sigmoid;
      Number rest = Rounded32(one + q * -1.0);
      // This is exact where 1 - sigmoid(z) cancels all digits.
      rest.exact = sigmoids.of_minus_z;
      const Number slope =
          Rounded32(Product(q, Rounded32(Rounded32(rest * z) + one)));
      const Number ds = RoundedOnTheWay(
          grid, Rounded32(Number(dhidden) * static_cast<double>(up(i, j))));
      return BeforeGrid(grid, Product(ds, slope));
    });
    of_up.AddResult(i, j, dup(i, j), [&]<typename Number>() {
      const Number silu = Silu<Number>(grid, z, sigmoid);
      return BeforeGrid(grid, Product(silu, Number(dhidden)));
    });
  });
  of_gate.AddUnseen(sample);
  of_up.AddUnseen(sample);
  sink.Add(name + ".w1_gradient", of_gate);
  sink.Add(name + ".w3_gradient", of_up);
}

void CheckEmbedding(const StepInputs& inputs, ReportSink& sink) {
  const MatrixView<const float> table = inputs.Values("tok_embeddings_weight");
  const MatrixView<const float> rows = inputs.Values("tok_embeddings_output");
  Comparison comparison(inputs.activations);
  for (size_t t = 0; t < rows.rows(); ++t) {
    const auto id = static_cast<size_t>(inputs.batch.tokens[t]);
    comparison.AddExactRow(t, rows.Row(t), table.Row(id), rows.cols());
  }
  sink.Add("tok_embeddings_output", comparison);
}

void CheckEmbeddingGradient(const StepInputs& inputs, ReportSink& sink) {
  const MatrixView<const float> dx = inputs.Values("tok_embeddings_gradient");
  const MatrixView<const float> table = inputs.Values("tok_embeddings_wgrad");
  const oracle::Sample sample = inputs.SampleOf("tok_embeddings_wgrad");
  std::vector<Estimate> head;
  for (const LinearSite& site : LinearSites(inputs)) {
    if (site.tied) head = WeightGradient(inputs, site, sample);
  }
  std::vector<std::vector<size_t>> places(table.rows());
  for (size_t t = 0; t < inputs.tokens(); ++t) {
    places[static_cast<size_t>(inputs.batch.tokens[t])].push_back(t);
  }
  Comparison comparison(Grid::kFp32);
  std::vector<float> terms;
  size_t next = 0;
  sample.ForEach([&](size_t id, size_t j) {
    terms.clear();
    for (const size_t t : places[id]) terms.push_back(dx(t, j));
    Estimate value = oracle::Sum(terms.data(), terms.size());
    if (!head.empty()) value = head[next++] + value;
    comparison.Add(id, j, table(id, j), value);
  });
  comparison.AddUnseen(sample);
  sink.Add("tok_embeddings_wgrad", comparison);
}

void AddElementwiseParts(const StepInputs& inputs,
                         std::vector<CheckPart>& parts) {
  const auto add_all = [&parts](const auto& places, auto check) {
    for (const auto& place : places) {
      parts.emplace_back(
          [place, check](const StepInputs& step, ReportSink& sink) {
            check(step, place, sink);
          });
    }
  };
  add_all(CopyPlaces(inputs.config), CheckCopy);
  add_all(AddPlaces(inputs.config), CheckAdd);
  add_all(FeedForwards(inputs.config), CheckSwigluForward);
  add_all(FeedForwards(inputs.config), CheckSwigluBackward);
  for (const auto check : {CheckEmbedding, CheckEmbeddingGradient}) {
    parts.emplace_back(check);
  }
}

}  // namespace isoloss::step_checks
