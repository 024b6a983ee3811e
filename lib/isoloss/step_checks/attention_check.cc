#include "isoloss/step_checks/attention_check.h"

#include <algorithm>
#include <string>

#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/rotation.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;
using oracle::Sample;

/// Returns each token's position in its document. It does not read
/// batch.positions, which are part of what is checked.
std::vector<int32_t> PositionsIn(const std::vector<size_t>& document_ends) {
  std::vector<int32_t> positions;
  size_t begin = 0;
  for (const size_t end : document_ends) {
    for (size_t t = begin; t < end; ++t) {
      positions.push_back(static_cast<int32_t>(t - begin));
    }
    begin = end;
  }
  return positions;
}

class AttentionOracle {
 public:
  AttentionOracle(const StepRecord& record, const model::ModelConfig& config,
                  size_t layer, const corpus::Batch& batch, Grid grid,
                  ReportSink& sink, const AttentionFormats& formats)
      : formats_(formats),
        record_(record),
        c_(config),
        name_("layers." + std::to_string(layer) + ".attention."),
        batch_(batch),
        grid_(grid),
        sink_(sink),
        positions_(PositionsIn(batch.document_ends)),
        rotation_(config, positions_) {}

  void Run() {
    CheckRotated("q_pe_rotated_output", Query("output"), c_.n_heads,
                 c_.qk_head_dim(), c_.qk_nope_head_dim);
    CheckRotated("k_pe_rotated_output", Of("wkv_a_output"), 1,
                 c_.kv_lora_rank + c_.qk_rope_head_dim, c_.kv_lora_rank);
    CheckAttentionCore(record_, c_, name_, batch_, grid_, sink_, formats_);
    CheckKeyCopies();
    CheckQueryGradient();
    CheckKeyRotaryGradient();
  }

 private:
  MatrixView<const float> Of(const std::string& tensor) const {
    return record_.At(name_ + tensor).values.view();
  }
  std::string QuerySite() const { return c_.q_lora_rank == 0 ? "wq" : "wq_b"; }
  MatrixView<const float> Query(const char* kind) const {
    return Of(QuerySite() + "_" + kind);
  }
  size_t tokens() const { return positions_.size(); }
  size_t value_stride() const { return c_.qk_nope_head_dim + c_.v_head_dim; }

  Sample SampleOf(const std::string& tensor) const {
    return formats_.sampling.Of(name_ + tensor, Of(tensor).rows(),
                                Of(tensor).cols());
  }

  void CheckRotated(const char* tensor, MatrixView<const float> source,
                    size_t heads, size_t stride, size_t offset);
  void CheckKeyCopies();
  void CheckQueryGradient();
  void CheckKeyRotaryGradient();

  const AttentionFormats& formats_;
  const StepRecord& record_;
  const model::ModelConfig& c_;
  const std::string name_;
  const corpus::Batch& batch_;
  const Grid grid_;
  ReportSink& sink_;
  std::vector<int32_t> positions_;  // [tokens]
  const oracle::Rotation rotation_;
};

void AttentionOracle::CheckRotated(const char* tensor,
                                   MatrixView<const float> source, size_t heads,
                                   size_t stride, size_t offset) {
  const MatrixView<const float> values = Of(tensor);
  const size_t width = c_.qk_rope_head_dim;
  const Sample sample = SampleOf(tensor);
  Comparison comparison(grid_);
  std::vector<Estimate> x(width);
  std::vector<Estimate> y(heads * width);
  for (size_t t = 0; t < tokens(); ++t) {
    if (!sample.Sees(t)) continue;
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < width; ++i) {
        x[i] = oracle::Exactly(
            static_cast<double>(source(t, h * stride + offset + i)));
      }
      rotation_.Turn(positions_[t], /*inverse=*/false, x.data(),
                     y.data() + h * width);
    }
    sample.ForEachIn(
        t, [&](size_t, size_t i) { comparison.Add(t, i, values(t, i), y[i]); });
  }
  comparison.AddUnseen(sample);
  sink_.Add(name_ + tensor, comparison);
}

/// wkv_b's gradient has the columns of inner_attention.k's gradient.
void AttentionOracle::CheckKeyCopies() {
  const MatrixView<const float> dk = Of("inner_attention.k_gradient");
  const MatrixView<const float> dexpanded = Of("wkv_b_gradient");
  Comparison comparison(grid_);
  for (size_t t = 0; t < tokens(); ++t) {
    for (size_t h = 0; h < c_.n_heads; ++h) {
      for (size_t i = 0; i < c_.qk_nope_head_dim; ++i) {
        const size_t column = h * value_stride() + i;
        comparison.AddExact(t, column, dexpanded(t, column),
                            dk(t, h * c_.qk_head_dim() + i));
      }
    }
  }
  sink_.Add(name_ + "wkv_b_gradient", comparison);
}

/// The gradient is a copy, but its rotary columns are turned back.
void AttentionOracle::CheckQueryGradient() {
  const std::string tensor = QuerySite() + "_gradient";
  const MatrixView<const float> dq = Of("inner_attention.q_gradient");
  const MatrixView<const float> values = Of(tensor);
  const size_t nope = c_.qk_nope_head_dim;
  const size_t rope = c_.qk_rope_head_dim;
  const Sample sample = SampleOf(tensor);
  Comparison comparison(grid_);
  std::vector<Estimate> x(rope);
  std::vector<Estimate> y(c_.n_heads * rope);
  for (size_t t = 0; t < tokens(); ++t) {
    if (!sample.Sees(t)) continue;
    for (size_t h = 0; h < c_.n_heads; ++h) {
      const size_t first = h * c_.qk_head_dim() + nope;
      for (size_t i = 0; i < rope; ++i) {
        x[i] = oracle::Exactly(static_cast<double>(dq(t, first + i)));
      }
      rotation_.Turn(positions_[t], /*inverse=*/true, x.data(),
                     y.data() + h * rope);
    }
    sample.ForEachIn(t, [&](size_t, size_t i) {
      const size_t of_head = i % c_.qk_head_dim();
      if (of_head < nope) {
        return comparison.AddExact(t, i, values(t, i), dq(t, i));
      }
      comparison.Add(t, i, values(t, i),
                     y[i / c_.qk_head_dim() * rope + of_head - nope]);
    });
  }
  comparison.AddUnseen(sample);
  sink_.Add(name_ + tensor, comparison);
}

/// All heads share k_pe. Its gradient is the sum over heads, rounded and turned
/// back.
void AttentionOracle::CheckKeyRotaryGradient() {
  const MatrixView<const float> dk = Of("inner_attention.k_gradient");
  const MatrixView<const float> values = Of("wkv_a_gradient");
  const size_t rope = c_.qk_rope_head_dim;
  const Sample sample =
      formats_.sampling.Of(name_ + "wkv_a_gradient", tokens(), rope);
  Comparison comparison(grid_);
  std::vector<Estimate> x(rope);
  std::vector<Estimate> y(rope);
  for (size_t t = 0; t < tokens(); ++t) {
    if (!sample.Sees(t)) continue;
    for (size_t i = 0; i < rope; ++i) {
      const size_t column = c_.qk_nope_head_dim + i;
      x[i] = RoundedOnTheWay(
          grid_, oracle::Sum(dk.Row(t) + column, c_.n_heads, c_.qk_head_dim()));
    }
    rotation_.Turn(positions_[t], /*inverse=*/true, x.data(), y.data());
    sample.ForEachIn(t, [&](size_t, size_t i) {
      const size_t column = c_.kv_lora_rank + i;
      comparison.Add(t, column, values(t, column), y[i]);
    });
  }
  comparison.AddUnseen(sample);
  sink_.Add(name_ + "wkv_a_gradient", comparison);
}

}  // namespace

void CheckAttention(const StepRecord& record, const model::ModelConfig& config,
                    size_t layer, const corpus::Batch& batch, Grid activations,
                    ReportSink& sink, const AttentionFormats& formats) {
  AttentionOracle(record, config, layer, batch, activations, sink, formats)
      .Run();
}

}  // namespace isoloss::step_checks
