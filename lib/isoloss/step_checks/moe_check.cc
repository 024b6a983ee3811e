#include "isoloss/step_checks/moe_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/scalar_cast.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Exactly;
using oracle::Grid;
using oracle::Sample;
using oracle::Sum32;

using expert_parallel::Algorithm;
using expert_parallel::MeshConfig;
using expert_parallel::WeightSite;

/// The relative error of the model's Sigmoid is at most 3 ulp.
constexpr double kSigmoidError = 6 * oracle::kUnitRoundoff;

// kernels/wire.h defines the payloads.

float RoundedValue(float value, Grid grid) {
  return grid == Grid::kBf16 ? formats::RoundToBf16(value) : value;
}

/// The payload has MX blocks of E4M3, whose scales are rounded up.
void PassMx(const float* row, size_t width, Grid grid, float* out) {
  const Matrix<float> passed = oracle::ScalarDequantize(
      oracle::ScalarQuantize({row, 1, width}, {&formats::FormatByName("e4m3")}),
      width);
  for (size_t i = 0; i < width; ++i) {
    out[i] = RoundedValue(passed(0, i), grid);
  }
}

/// All values of a run have the same scale.
void PassScaledRun(std::span<const float> run, bool power_of_two, Grid grid,
                   float* out) {
  constexpr float kMax = 448.0f;
  float amax = 1e-4f;
  for (const float value : run) {
    if (!std::isfinite(value)) {
      std::fill_n(out, run.size(), std::bit_cast<float>(0x7FC00000u));
      return;
    }
    amax = std::max(amax, std::fabs(value));
  }
  float encode = kMax / amax;
  float decode = amax / kMax;
  if (power_of_two) {
    // decode is the least power of two S with 448 S >= amax.
    int exponent = 0;
    const float fraction = std::frexp(amax, &exponent);  // [0.5, 1)
    // amax / 448 = fraction / 0.875 * 2^(exponent - 9).
    decode = std::ldexp(1.0f, fraction <= 0.875f ? exponent - 9 : exponent - 8);
    encode = 1.0f / decode;
  }
  for (size_t i = 0; i < run.size(); ++i) {
    const float code = oracle::NearestE4m3(run[i] * encode);
    out[i] = RoundedValue(code * decode, grid);
  }
}

void PassScaled(const float* row, size_t width, bool power_of_two, Grid grid,
                float* out) {
  constexpr size_t kRun = 128;
  for (size_t i = 0; i < width; i += kRun) {
    PassScaledRun({row + i, std::min(kRun, width - i)}, power_of_two, grid,
                  out + i);
  }
}

/// Returns round(round(gate * Sigmoid(gate)) * up), which the experts' w2 reads
/// before row weights.
Estimate Hidden(float gate, float up, Grid grid) {
  const auto z = static_cast<double>(gate);
  const double s = 1.0 / (1.0 + portable::Exp(-z));
  const Estimate sigmoid = {.exact = s,
                            .bound = kSigmoidError * s + oracle::kTiny,
                            .noise = 0.3 * oracle::Ulp(s)};
  const Estimate silu = RoundedOnTheWay(grid, Rounded32(sigmoid * z));
  return RoundedOnTheWay(grid, Rounded32(silu * static_cast<double>(up)));
}

/// Adds up the rows that an exchange brings back for each token, as the
/// algorithm says.
class Combiner {
 public:
  Combiner(const MeshConfig& mesh, size_t tokens, Grid grid)
      : mesh_(mesh), tokens_(tokens), grid_(grid) {}

  /// Returns the sum of one token's rows before the last rounding. `terms` are
  /// in slot order. Each gets `roundings` FP32 roundings within the sum.
  Estimate Combine(size_t token, std::span<const int32_t> experts,
                   std::span<const Estimate> terms, size_t roundings) const {
    switch (mesh_.options.algorithm) {
      case Algorithm::kFlat:
        break;
      case Algorithm::kRank:
        return Total(ByRank(token, experts, terms));
      case Algorithm::kNode:
        return Total(ByNode(ByRank(token, experts, terms)));
      case Algorithm::kTitanBf16:
        return Running(experts, terms);
    }
    Sum32 sum;
    for (const Estimate& term : terms) sum.Add(term);
    return sum.Value(roundings);
  }

 private:
  /// Each rank or node has a rounded sum.
  using Sums = std::map<size_t, Estimate>;

  Sums Rounded(const std::map<size_t, Sum32>& sums) const {
    Sums rounded;
    for (const auto& [place, sum] : sums) {
      rounded[place] = RoundedOnTheWay(grid_, sum.Value());
    }
    return rounded;
  }
  Sums ByRank(size_t token, std::span<const int32_t> experts,
              std::span<const Estimate> terms) const {
    const size_t source = mesh_.topology.RankOfToken(token, tokens_);
    std::map<size_t, Sum32> sums;
    for (size_t k = 0; k < terms.size(); ++k) {
      const auto expert = static_cast<size_t>(experts[k]);
      sums[mesh_.topology.OwnerOf(expert, source)].Add(terms[k]);
    }
    return Rounded(sums);
  }
  Sums ByNode(const Sums& ranks) const {
    std::map<size_t, Sum32> sums;
    for (const auto& [rank, value] : ranks) {
      sums[mesh_.topology.NodeOf(rank)].Add(value);
    }
    return Rounded(sums);
  }
  static Estimate Total(const Sums& sums) {
    Sum32 total;
    for (const auto& [place, value] : sums) total.Add(value);
    return total.Value();
  }
  /// Adds by ascending expert and rounds after every addition.
  Estimate Running(std::span<const int32_t> experts,
                   std::span<const Estimate> terms) const {
    std::vector<size_t> order(terms.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return experts[a] < experts[b]; });
    Estimate sum;
    for (const size_t k : order) {
      sum = RoundedOnTheWay(grid_, Operation32(sum + terms[k]));
    }
    return sum;
  }

  const MeshConfig& mesh_;
  const size_t tokens_;
  const Grid grid_;
};

class MoeOracle {
 public:
  MoeOracle(const StepRecord& record, const model::ModelConfig& config,
            size_t layer, const MeshConfig& mesh, Grid grid, ReportSink& sink,
            const Sampling& sampling)
      : record_(record),
        c_(config),
        mesh_(mesh),
        grid_(grid),
        sink_(sink),
        sampling_(sampling),
        layer_("layers." + std::to_string(layer)),
        experts_(layer_ + ".moe.routed_experts"),
        ids_(record.ExpertIds(layer_ + ".moe.router")),
        weights_(Of(layer_ + ".moe.router.topk_weights_output")),
        rows_(PlaceRows(ids_, config.num_experts, mesh)),
        combiner_(mesh, ids_.rows(), grid) {}

  void Run() {
    if (!ListsAreAsExpected()) return;
    CheckDispatch(experts_ + ".w1_activation");
    CheckDispatch(experts_ + ".w3_activation");
    CheckCombine();
    CheckOutputGradients();
    CheckInputGradient();
  }

 private:
  MatrixView<const float> Of(const std::string& tensor) const {
    return record_.At(tensor).values.view();
  }
  Sample SampleOf(const std::string& tensor) const {
    return sampling_.Of(tensor, Of(tensor).rows(), Of(tensor).cols(),
                        record_.At(tensor).begins);
  }
  std::span<const int32_t> IdsOf(size_t t) const {
    return {ids_.Row(t), ids_.cols()};
  }
  size_t RowOf(size_t t, size_t k) const {
    return static_cast<size_t>(rows_.row_of_slot(t, k));
  }
  bool BeforeFc2() const {
    return mesh_.options.weight_site == WeightSite::kBeforeFc2;
  }

  bool ListsAreAsExpected();
  void CheckDispatch(const std::string& tensor);
  void CheckCombine();
  void CheckOutputGradients();
  Estimate WeightGradient(const float* gradient, size_t row) const;
  void CheckInputGradient();

  const StepRecord& record_;
  const model::ModelConfig& c_;
  const MeshConfig& mesh_;
  const Grid grid_;
  ReportSink& sink_;
  const Sampling& sampling_;
  const std::string layer_;
  const std::string experts_;
  const MatrixView<const int32_t> ids_;    // [T, K]
  const MatrixView<const float> weights_;  // [T, K]
  const ExpertRows rows_;
  const Combiner combiner_;
};

/// If the lists differ, no rows can be compared, so all tensors are other.
bool MoeOracle::ListsAreAsExpected() {
  const RecordedTensor& lists = record_.At(experts_ + ".w1_activation");
  if (lists.values.rows() == rows_.rows() && lists.begins == rows_.begins &&
      lists.segment_ends == rows_.unit_ends) {
    return true;
  }
  for (const std::string& tensor :
       {experts_ + ".w1_activation", experts_ + ".w3_activation",
        experts_ + "_output", experts_ + ".w2_gradient",
        layer_ + ".moe.router.topk_weights_gradient",
        layer_ + ".ffn_norm_gradient"}) {
    Comparison comparison(grid_);
    comparison.AddOther(0, 0, static_cast<float>(lists.values.rows()),
                        static_cast<double>(rows_.rows()));
    sink_.Add(tensor, comparison);
  }
  return false;
}

void MoeOracle::CheckDispatch(const std::string& tensor) {
  const MatrixView<const float> values = Of(tensor);
  const Matrix<float> sent = AfterPayload(Of(layer_ + ".ffn_norm_output"),
                                          mesh_.options.payload, grid_);
  const std::vector<float> padding(values.cols());
  Comparison comparison(grid_);
  for (size_t r = 0; r < rows_.rows(); ++r) {
    const int32_t token = rows_.token_of_row[r];
    const float* expected =
        token < 0 ? padding.data() : sent.Row(static_cast<size_t>(token));
    comparison.AddExactRow(r, values.Row(r), expected, values.cols());
  }
  sink_.Add(tensor, comparison);
}

void MoeOracle::CheckCombine() {
  const MatrixView<const float> rows = Of(experts_ + ".w2_output");
  const MatrixView<const float> values = Of(experts_ + "_output");
  const WeightSite site = mesh_.options.weight_site;
  const Sample sample = SampleOf(experts_ + "_output");
  Comparison comparison(grid_);
  std::vector<Estimate> terms(c_.top_k);
  sample.ForEach([&](size_t t, size_t i) {
    for (size_t k = 0; k < c_.top_k; ++k) {
      Estimate& term = terms[k];
      term = Exactly(static_cast<double>(rows(RowOf(t, k), i)));
      if (site == WeightSite::kBeforeFc2) continue;
      term = term * static_cast<double>(weights_(t, k));
      if (site == WeightSite::kSource) continue;
      term = RoundedOnTheWay(grid_, Operation32(term));
    }
    const size_t roundings = site == WeightSite::kSource ? 1 : 0;
    comparison.Add(t, i, values(t, i),
                   combiner_.Combine(t, IdsOf(t), terms, roundings));
  });
  comparison.AddUnseen(sample);
  sink_.Add(experts_ + "_output", comparison);
}

/// Returns the gradient of one row's weight. `gradient` is the output gradient
/// of the row's token.
Estimate MoeOracle::WeightGradient(const float* gradient, size_t row) const {
  if (!BeforeFc2()) {
    return oracle::Dot(gradient, Of(experts_ + ".w2_output").Row(row), c_.dim);
  }
  const float* dhidden = Of(experts_ + ".w2_dgrad").Row(row);
  const float* gate = Of(experts_ + ".w1_output").Row(row);
  const float* up = Of(experts_ + ".w3_output").Row(row);
  Sum32 sum;
  for (size_t i = 0; i < c_.moe_hidden_dim; ++i) {
    sum.Add(Hidden(gate[i], up[i], grid_) * static_cast<double>(dhidden[i]));
  }
  return sum.Value(1);
}

/// Compares the gradients of the experts' outputs and of the combine weights.
void MoeOracle::CheckOutputGradients() {
  const std::string of_weights = layer_ + ".moe.router.topk_weights_gradient";
  const MatrixView<const float> dout = Of(experts_ + ".w2_gradient");
  const MatrixView<const float> dweights = Of(of_weights);
  const Matrix<float> sent = AfterPayload(
      Of(layer_ + "_gradient"), mesh_.options.gradient_payload, grid_);
  const Sample of_gradients = SampleOf(experts_ + ".w2_gradient");
  Comparison gradients(grid_);
  of_gradients.ForEach([&](size_t r, size_t i) {
    if (rows_.token_of_row[r] < 0) {
      return gradients.AddExact(r, i, dout(r, i), 0.0f);
    }
    const auto t = static_cast<size_t>(rows_.token_of_row[r]);
    const auto k = static_cast<size_t>(rows_.slot_of_row[r]);
    if (BeforeFc2()) return gradients.AddExact(r, i, dout(r, i), sent(t, i));
    const Estimate row = Exactly(static_cast<double>(sent(t, i)));
    gradients.Add(
        r, i, dout(r, i),
        LastOperation32(grid_, row * static_cast<double>(weights_(t, k))));
  });
  gradients.AddUnseen(of_gradients);
  const Sample some = SampleOf(of_weights);
  Comparison weights(Grid::kFp32);
  for (size_t r = 0; r < rows_.rows(); ++r) {
    if (rows_.token_of_row[r] < 0) continue;
    const auto t = static_cast<size_t>(rows_.token_of_row[r]);
    const auto k = static_cast<size_t>(rows_.slot_of_row[r]);
    if (!some.Sees(t, k)) continue;
    weights.Add(t, k, dweights(t, k), WeightGradient(sent.Row(t), r));
  }
  weights.AddUnseen(some);
  sink_.Add(experts_ + ".w2_gradient", gradients);
  sink_.Add(of_weights, weights);
}

/// The gradient is round(combined dgrads of the experts + (shared + gate)).
void MoeOracle::CheckInputGradient() {
  const MatrixView<const float> rows = Of(experts_ + ".w3_dgrad");
  const MatrixView<const float> gate = Of(layer_ + ".moe.router.gate_dgrad");
  const RecordedTensor* shared =
      record_.Find(layer_ + ".moe.shared_experts.w3_dgrad");
  const MatrixView<const float> values = Of(layer_ + ".ffn_norm_gradient");
  const Sample sample = SampleOf(layer_ + ".ffn_norm_gradient");
  Comparison comparison(grid_);
  std::vector<Estimate> terms(c_.top_k);
  sample.ForEach([&](size_t t, size_t i) {
    for (size_t k = 0; k < c_.top_k; ++k) {
      terms[k] = Exactly(static_cast<double>(rows(RowOf(t, k), i)));
    }
    Estimate rest = Exactly(static_cast<double>(gate(t, i)));
    if (shared != nullptr) {
      const auto addend = static_cast<double>(shared->values(t, i));
      rest = oracle::Operation32(rest + Exactly(addend));
    }
    const Estimate sum = combiner_.Combine(t, IdsOf(t), terms, 0);
    comparison.Add(t, i, values(t, i), LastOperation32(grid_, sum + rest));
  });
  comparison.AddUnseen(sample);
  sink_.Add(layer_ + ".ffn_norm_gradient", comparison);
}

}  // namespace

ExpertRows PlaceRows(MatrixView<const int32_t> expert_ids, size_t experts,
                     const MeshConfig& mesh) {
  const size_t tokens = expert_ids.rows();
  const size_t units = mesh.dispatch_units;
  const size_t padding = mesh.options.padding;
  ExpertRows rows;
  rows.row_of_slot.Resize(tokens, expert_ids.cols());
  rows.begins.push_back(0);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t k = 0; k < expert_ids.cols(); ++k) {
      const int32_t id = expert_ids(t, k);
      if (id >= 0 && static_cast<size_t>(id) < experts) continue;
      ThrowError(ErrorKind::kFormat,
                 "oracle: token {} chose expert {}, but there are {} experts. "
                 "The step's routing is broken.",
                 t, id, experts);
    }
  }
  for (size_t e = 0; e < experts; ++e) {
    for (size_t unit = 0; unit < units; ++unit) {
      const size_t first = rows.rows();
      for (size_t t = unit * tokens / units; t < (unit + 1) * tokens / units;
           ++t) {
        for (size_t k = 0; k < expert_ids.cols(); ++k) {
          if (expert_ids(t, k) != static_cast<int32_t>(e)) continue;
          rows.row_of_slot(t, k) = static_cast<int32_t>(rows.rows());
          rows.token_of_row.push_back(static_cast<int32_t>(t));
          rows.slot_of_row.push_back(static_cast<int32_t>(k));
        }
      }
      const size_t used = rows.rows() - first;
      const size_t full = first + (used + padding - 1) / padding * padding;
      rows.token_of_row.resize(full, -1);
      rows.slot_of_row.resize(full, -1);
      if (units > 1) rows.unit_ends.push_back(full - rows.begins.back());
    }
    rows.begins.push_back(rows.rows());
  }
  return rows;
}

std::vector<float> ExpertRowWeights(const StepRecord& record,
                                    const model::ModelConfig& config,
                                    size_t layer, const MeshConfig& mesh) {
  const std::string router = "layers." + std::to_string(layer) + ".moe.router";
  const ExpertRows rows =
      PlaceRows(record.ExpertIds(router), config.num_experts, mesh);
  const Matrix<float>& weights =
      record.At(router + ".topk_weights_output").values;
  std::vector<float> of_rows(rows.rows(), 0.0f);
  for (size_t r = 0; r < rows.rows(); ++r) {
    if (rows.token_of_row[r] < 0) continue;
    of_rows[r] = weights(static_cast<size_t>(rows.token_of_row[r]),
                         static_cast<size_t>(rows.slot_of_row[r]));
  }
  return of_rows;
}

Matrix<float> AfterPayload(MatrixView<const float> rows,
                           const std::string& payload, Grid activations) {
  Matrix<float> result(rows.rows(), rows.cols());
  for (size_t t = 0; t < rows.rows(); ++t) {
    const float* row = rows.Row(t);
    float* out = result.Row(t);
    if (payload == "unquantized") {
      std::copy_n(row, rows.cols(), out);
    } else if (payload == "mx1x32") {
      PassMx(row, rows.cols(), activations, out);
    } else if (payload == "e4m3_1x128_fp32") {
      PassScaled(row, rows.cols(), /*power_of_two=*/false, activations, out);
    } else if (payload == "e4m3_1x128_pow2") {
      PassScaled(row, rows.cols(), /*power_of_two=*/true, activations, out);
    } else {
      ThrowError(ErrorKind::kConfig,
                 "oracle: the payload `{}` is none that the oracle knows: "
                 "unquantized, mx1x32, e4m3_1x128_fp32, e4m3_1x128_pow2. "
                 "Define it in oracle/moe_check.cc.",
                 payload);
    }
  }
  return result;
}

void CheckMoe(const StepRecord& record, const model::ModelConfig& config,
              size_t layer, const MeshConfig& mesh, Grid activations,
              ReportSink& sink, const Sampling& sampling) {
  MoeOracle(record, config, layer, mesh, activations, sink, sampling).Run();
}

}  // namespace isoloss::step_checks
