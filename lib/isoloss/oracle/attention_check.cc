#include "isoloss/oracle/attention_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/rotation.h"

namespace isoloss::oracle {
namespace {

/// Error of the model's Exp, 2 ulp, relative.
constexpr double kExpError = 4 * kUnitRoundoff;

/// A number computed in FP32: what it should be and how far it may be off.
struct Uncertain {
  double exact = 0.0;
  double bound = 0.0;
  double variance = 0.0;

  explicit Uncertain(const Estimate& e)
      : exact(e.exact), bound(e.bound), variance(e.noise * e.noise) {}
  Uncertain() = default;
};

/// sum over terms of factor * values[column], for each column: an FP32 chain.
class RowSums {
 public:
  explicit RowSums(size_t width) : columns_(width) {}

  void Clear() {
    std::fill(columns_.begin(), columns_.end(), Column{});
    terms_ = 0;
  }
  void Add(const Uncertain& factor, const float* values) {
    ++terms_;
    for (size_t c = 0; c < columns_.size(); ++c) {
      Column& column = columns_[c];
      const auto value = static_cast<double>(values[c]);
      const double term = factor.exact * value;
      column.exact += term;
      column.size += std::fabs(term);
      column.input += factor.bound * std::fabs(value);
      column.variance += factor.variance * value * value +
                         kRoundingVariance * column.exact * column.exact;
    }
  }
  Estimate At(size_t column) const {
    const Column& c = columns_[column];
    return {.exact = c.exact,
            .bound = c.input + Gamma(terms_ + 1) * (c.size + c.input) +
                     static_cast<double>(terms_) * kTiny,
            .noise = std::sqrt(c.variance)};
  }

 private:
  struct Column {
    double exact = 0.0;
    double size = 0.0;
    double input = 0.0;  // what errors of the factors may add
    double variance = 0.0;
  };
  std::vector<Column> columns_;
  size_t terms_ = 0;
};

/// Of each token in its document. Not batch.positions, which are part of what
/// is checked.
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

/// One layer's check.
class AttentionOracle {
 public:
  AttentionOracle(const StepRecord& record, const model::ModelConfig& config,
                  size_t layer, const corpus::Batch& batch, Grid grid,
                  ReportSink& sink)
      : record_(record),
        c_(config),
        name_("layers." + std::to_string(layer) + ".attention."),
        batch_(batch),
        grid_(grid),
        sink_(sink),
        positions_(PositionsIn(batch.document_ends)),
        rotation_(config, positions_),
        scale_(static_cast<double>(OracleSoftmaxScale(config))) {}

  void Run() {
    CheckRotated("q_pe_rotated_output", Query("output"), c_.n_heads,
                 c_.qk_head_dim(), c_.qk_nope_head_dim);
    CheckRotated("k_pe_rotated_output", Of("wkv_a_output"), 1,
                 c_.kv_lora_rank + c_.qk_rope_head_dim, c_.kv_lora_rank);
    Assemble();
    CheckCore();
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

  void CheckRotated(const char* tensor, MatrixView<const float> source,
                    size_t heads, size_t stride, size_t offset);
  void Assemble();
  void CheckCore();
  void CheckHead(size_t begin, size_t end, size_t head);
  void Probabilities(size_t begin, size_t query, size_t head);
  void ScoreGradients(size_t begin, size_t query, size_t head);
  void DotsWith(const float* left, size_t width, size_t keys,
                const std::vector<const float*>& rows,
                std::vector<Estimate>& dots) const;
  void CheckKeyCopies();
  void CheckQueryGradient();
  void CheckKeyRotaryGradient();

  const StepRecord& record_;
  const model::ModelConfig& c_;
  const std::string name_;
  const corpus::Batch& batch_;
  const Grid grid_;
  ReportSink& sink_;
  std::vector<int32_t> positions_;  // [tokens]
  const Rotation rotation_;
  const double scale_;

  Matrix<float> queries_;  // [T, H (dn + dr)]
  Matrix<float> keys_;     // [T, H (dn + dr)]
  MatrixView<const float> expanded_;
  MatrixView<const float> dout_;

  Comparison output_{grid_};
  Comparison dqueries_{grid_};
  Comparison dkeys_{grid_};
  Comparison dvalues_{grid_};

  // Of the query at hand, over the keys that it sees.
  std::vector<const float*> key_rows_;
  std::vector<const float*> value_rows_;
  std::vector<Estimate> dots_;
  std::vector<Uncertain> p_;
  std::vector<Uncertain> ds_;
};

void AttentionOracle::CheckRotated(const char* tensor,
                                   MatrixView<const float> source, size_t heads,
                                   size_t stride, size_t offset) {
  const MatrixView<const float> values = Of(tensor);
  const size_t width = c_.qk_rope_head_dim;
  Comparison comparison(grid_);
  std::vector<Estimate> x(width);
  std::vector<Estimate> y(width);
  for (size_t t = 0; t < tokens(); ++t) {
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < width; ++i) {
        x[i] = Exactly(static_cast<double>(source(t, h * stride + offset + i)));
      }
      rotation_.Turn(positions_[t], /*inverse=*/false, x.data(), y.data());
      for (size_t i = 0; i < width; ++i) {
        comparison.Add(t, h * width + i, values(t, h * width + i), y[i]);
      }
    }
  }
  sink_.Add(name_ + tensor, comparison);
}

/// Queries and keys as the core reads them, from what was announced.
void AttentionOracle::Assemble() {
  const size_t nope = c_.qk_nope_head_dim;
  const size_t rope = c_.qk_rope_head_dim;
  const size_t width = c_.qk_head_dim();
  const MatrixView<const float> query = Query("output");
  const MatrixView<const float> q_pe = Of("q_pe_rotated_output");
  const MatrixView<const float> k_pe = Of("k_pe_rotated_output");
  expanded_ = Of("wkv_b_output");
  dout_ = Of("wo_dgrad");
  queries_.Resize(tokens(), c_.n_heads * width);
  keys_.Resize(tokens(), c_.n_heads * width);
  for (size_t t = 0; t < tokens(); ++t) {
    for (size_t h = 0; h < c_.n_heads; ++h) {
      float* q = queries_.Row(t) + h * width;
      float* k = keys_.Row(t) + h * width;
      std::copy_n(query.Row(t) + h * width, nope, q);
      std::copy_n(q_pe.Row(t) + h * rope, rope, q + nope);
      std::copy_n(expanded_.Row(t) + h * value_stride(), nope, k);
      std::copy_n(k_pe.Row(t), rope, k + nope);
    }
  }
}

void AttentionOracle::CheckCore() {
  size_t begin = 0;
  for (const size_t end : batch_.document_ends) {
    for (size_t h = 0; h < c_.n_heads; ++h) CheckHead(begin, end, h);
    begin = end;
  }
  sink_.Add(name_ + "inner_attention_output", output_);
  sink_.Add(name_ + "inner_attention.q_gradient", dqueries_);
  sink_.Add(name_ + "inner_attention.k_gradient", dkeys_);
  sink_.Add(name_ + "wkv_b_gradient", dvalues_);
}

/// Document [begin, end) under one head, forward and backward.
void AttentionOracle::CheckHead(size_t begin, size_t end, size_t head) {
  const size_t width = c_.qk_head_dim();
  const size_t v_width = c_.v_head_dim;
  const size_t v_first = head * value_stride() + c_.qk_nope_head_dim;
  const MatrixView<const float> out = Of("inner_attention_output");
  const MatrixView<const float> dq = Of("inner_attention.q_gradient");
  const MatrixView<const float> dk = Of("inner_attention.k_gradient");
  const MatrixView<const float> dexpanded = Of("wkv_b_gradient");
  key_rows_.clear();
  value_rows_.clear();
  RowSums sum_out(v_width);
  RowSums sum_dq(width);
  std::vector<RowSums> sum_dk(end - begin, RowSums(width));
  std::vector<RowSums> sum_dv(end - begin, RowSums(v_width));
  for (size_t i = begin; i < end; ++i) {
    key_rows_.push_back(keys_.Row(i) + head * width);
    value_rows_.push_back(expanded_.Row(i) + v_first);
    Probabilities(begin, i, head);
    ScoreGradients(begin, i, head);
    sum_out.Clear();
    sum_dq.Clear();
    for (size_t j = 0; j <= i - begin; ++j) {
      sum_out.Add(p_[j], value_rows_[j]);
      sum_dq.Add(ds_[j], key_rows_[j]);
      sum_dv[j].Add(p_[j], dout_.Row(i) + head * v_width);
      sum_dk[j].Add(ds_[j], queries_.Row(i) + head * width);
    }
    for (size_t c = 0; c < v_width; ++c) {
      const size_t column = head * v_width + c;
      output_.Add(i, column, out(i, column), sum_out.At(c));
    }
    for (size_t c = 0; c < width; ++c) {
      const size_t column = head * width + c;
      dqueries_.Add(i, column, dq(i, column), sum_dq.At(c));
    }
  }
  for (size_t j = begin; j < end; ++j) {
    for (size_t c = 0; c < width; ++c) {
      const size_t column = head * width + c;
      dkeys_.Add(j, column, dk(j, column), sum_dk[j - begin].At(c));
    }
    for (size_t c = 0; c < v_width; ++c) {
      dvalues_.Add(j, v_first + c, dexpanded(j, v_first + c),
                   sum_dv[j - begin].At(c));
    }
  }
}

/// dots[j] = left . rows[j] for the first `keys` rows.
void AttentionOracle::DotsWith(const float* left, size_t width, size_t keys,
                               const std::vector<const float*>& rows,
                               std::vector<Estimate>& dots) const {
  dots.resize(keys);
  for (size_t j = 0; j < keys; j += kDotLanes) {
    DotRows(left, &rows[j], std::min(kDotLanes, keys - j), width, &dots[j]);
  }
  for (Estimate& dot : dots) dot = Overflowed32(dot);
}

/// p_ of one query. That all exponents are shifted alike cancels; what remains
/// is each one's own error, and that of their sum.
void AttentionOracle::Probabilities(size_t begin, size_t query, size_t head) {
  const size_t keys = query - begin + 1;
  const size_t width = c_.qk_head_dim();
  DotsWith(queries_.Row(query) + head * width, width, keys, key_rows_, dots_);
  double max = -HUGE_VAL;
  bool has_nan = false;
  for (const Estimate& dot : dots_) {
    max = std::max(max, dot.exact);
    has_nan = has_nan || std::isnan(dot.exact);
  }
  if (has_nan || std::isinf(max)) {  // infinity less itself is NaN
    p_.assign(keys, Uncertain(Exactly(std::nan(""))));
    return;
  }
  if (keys == 1) {
    p_.assign(1, Uncertain(Exactly(1.0)));
    return;
  }
  p_.resize(keys);
  double sum = 0.0;
  double sum_error = 0.0;
  double sum_variance = 0.0;
  for (size_t j = 0; j < keys; ++j) {
    const double x = (dots_[j].exact - max) * scale_;
    if (std::isinf(x)) {
      p_[j] = Uncertain(Exactly(0.0));
      continue;
    }
    const double e = portable::Exp(x);
    // Subtraction, scaling, Exp.
    const double error = portable::Expm1(dots_[j].bound * scale_ +
                                         Gamma(2) * std::fabs(x) + kExpError);
    const double spread = dots_[j].noise * scale_;
    p_[j].exact = e;
    p_[j].bound = error;
    p_[j].variance = spread * spread + 2 * kRoundingVariance * (1 + x * x);
    sum += e;
    sum_error += e * error;
    sum_variance += kRoundingVariance * sum * sum;
  }
  const double error_of_sum = sum_error / sum + Gamma(keys);
  const double variance_of_sum = sum_variance / (sum * sum);
  for (Uncertain& p : p_) {
    p.exact /= sum;
    // Reciprocal and product; second-order terms are below the last factor.
    const double error = (p.bound + error_of_sum + Gamma(2)) * (1 + 0x1p-10);
    p.bound = p.exact * error + kTiny;
    p.variance = p.exact * p.exact *
                 (p.variance + variance_of_sum + 2 * kRoundingVariance);
  }
}

/// ds_ of one query, from its probabilities:
/// ds = scale * (p * (dp - sum(dp * p))).
void AttentionOracle::ScoreGradients(size_t begin, size_t query, size_t head) {
  const size_t keys = query - begin + 1;
  const size_t width = c_.v_head_dim;
  DotsWith(dout_.Row(query) + head * width, width, keys, value_rows_, dots_);
  // Its probability is 1, its dp the mean: no rounding.
  if (keys == 1 && std::isfinite(p_[0].exact * dots_[0].exact)) {
    ds_.assign(1, {});
    return;
  }
  Estimate mean;
  double size = 0.0;
  double variance = 0.0;
  for (size_t j = 0; j < keys; ++j) {
    const Uncertain& p = p_[j];
    const Estimate& dp = dots_[j];
    const double dp_size = std::fabs(dp.exact);
    mean.exact += dp.exact * p.exact;
    mean.bound += dp_size * p.bound + (p.exact + p.bound) * dp.bound;
    size += dp_size * p.exact;
    variance += dp_size * dp_size * p.variance +
                p.exact * p.exact * dp.noise * dp.noise +
                kRoundingVariance * mean.exact * mean.exact;
  }
  mean.bound += Gamma(keys + 1) * (size + mean.bound);
  mean.noise = std::sqrt(variance);
  ds_.resize(keys);
  for (size_t j = 0; j < keys; ++j) {
    const Estimate p = {.exact = p_[j].exact,
                        .bound = p_[j].bound,
                        .noise = std::sqrt(p_[j].variance)};
    const Estimate rest = Rounded32(Difference(dots_[j], mean));
    ds_[j] = Uncertain(Rounded32(Product(p, rest) * scale_, 2));
  }
}

/// Key columns of wkv_b's gradient are inner_attention.k's.
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

/// A copy, but for the rotary columns, which are turned back.
void AttentionOracle::CheckQueryGradient() {
  const std::string tensor = QuerySite() + "_gradient";
  const MatrixView<const float> dq = Of("inner_attention.q_gradient");
  const MatrixView<const float> values = Of(tensor);
  const size_t nope = c_.qk_nope_head_dim;
  const size_t rope = c_.qk_rope_head_dim;
  Comparison comparison(grid_);
  std::vector<Estimate> x(rope);
  std::vector<Estimate> y(rope);
  for (size_t t = 0; t < tokens(); ++t) {
    for (size_t h = 0; h < c_.n_heads; ++h) {
      const size_t first = h * c_.qk_head_dim();
      for (size_t i = first; i < first + nope; ++i) {
        comparison.AddExact(t, i, values(t, i), dq(t, i));
      }
      for (size_t i = 0; i < rope; ++i) {
        x[i] = Exactly(static_cast<double>(dq(t, first + nope + i)));
      }
      rotation_.Turn(positions_[t], /*inverse=*/true, x.data(), y.data());
      for (size_t i = 0; i < rope; ++i) {
        const size_t column = first + nope + i;
        comparison.Add(t, column, values(t, column), y[i]);
      }
    }
  }
  sink_.Add(name_ + tensor, comparison);
}

/// k_pe is one for all heads: its gradient is their sum, rounded, turned back.
void AttentionOracle::CheckKeyRotaryGradient() {
  const MatrixView<const float> dk = Of("inner_attention.k_gradient");
  const MatrixView<const float> values = Of("wkv_a_gradient");
  const size_t rope = c_.qk_rope_head_dim;
  Comparison comparison(grid_);
  std::vector<Estimate> x(rope);
  std::vector<Estimate> y(rope);
  for (size_t t = 0; t < tokens(); ++t) {
    for (size_t i = 0; i < rope; ++i) {
      const size_t column = c_.qk_nope_head_dim + i;
      x[i] = RoundedOnTheWay(
          grid_, Sum(dk.Row(t) + column, c_.n_heads, c_.qk_head_dim()));
    }
    rotation_.Turn(positions_[t], /*inverse=*/true, x.data(), y.data());
    for (size_t i = 0; i < rope; ++i) {
      const size_t column = c_.kv_lora_rank + i;
      comparison.Add(t, column, values(t, column), y[i]);
    }
  }
  sink_.Add(name_ + "wkv_a_gradient", comparison);
}

}  // namespace

float OracleSoftmaxScale(const model::ModelConfig& config) {
  double scale = 1.0 / std::sqrt(static_cast<double>(config.qk_head_dim()));
  if (config.yarn && config.rope_factor > 1.0) {
    const double m =
        0.1 * config.mscale * portable::Log(config.rope_factor) + 1.0;
    scale *= m * m;
  }
  return static_cast<float>(scale);
}

void CheckAttention(const StepRecord& record, const model::ModelConfig& config,
                    size_t layer, const corpus::Batch& batch, Grid activations,
                    ReportSink& sink) {
  AttentionOracle(record, config, layer, batch, activations, sink).Run();
}

}  // namespace isoloss::oracle
