#include "isoloss/oracle/attention_core_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/uncertain.h"

namespace isoloss::oracle {
namespace {

/// Roundings that scales of sums add to those of a chain: of their product, the
/// multiplication, and a value that is code times scale.
constexpr size_t kOfScales = 6;
/// Error of the model's Exp, 2 ulp, relative.
constexpr double kExpError = 4 * kUnitRoundoff;

/// sum over terms of factor * values[column], for each column: an FP32 chain.
class RowSums {
 public:
  explicit RowSums(size_t width) : columns_(width) {}

  void Clear() {
    std::fill(columns_.begin(), columns_.end(), Column{});
    terms_ = 0;
  }
  template <typename Value>
  void Add(const Uncertain& factor, const Value* values) {
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
  /// `more`: roundings that a term may take part in besides.
  Estimate At(size_t column, size_t more = 0) const {
    const Column& c = columns_[column];
    return {.exact = c.exact,
            .bound = c.input + Gamma(terms_ + 1 + more) * (c.size + c.input) +
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

/// As DotsWith of exact values, for the first dots.size() rows.
void QuantizedDots(const double* left, const Matrix<double>& rows,
                   std::vector<Estimate>& dots) {
  for (size_t j = 0; j < dots.size(); ++j) {
    double sum = 0.0;
    double size = 0.0;
    double variance = 0.0;
    for (size_t c = 0; c < rows.cols(); ++c) {
      const double term = left[c] * rows(j, c);
      sum += term;
      size += std::fabs(term);
      variance += kRoundingVariance * sum * sum;
    }
    const double tiny = size == 0.0 ? 0.0 : kTiny;
    dots[j] = Overflowed32({.exact = sum,
                            .bound = Gamma(rows.cols() + kOfScales) * size +
                                     static_cast<double>(rows.cols()) * tiny,
                            .noise = std::sqrt(variance)});
  }
}

/// What the core gives for one head of a document, by its tokens.
struct HeadSums {
  HeadSums(size_t tokens, size_t width, size_t value_width)
      : out(tokens, RowSums(value_width)),
        dq(tokens, RowSums(width)),
        dk(tokens, RowSums(width)),
        dv(tokens, RowSums(value_width)) {}

  std::vector<RowSums> out;
  std::vector<RowSums> dq;
  std::vector<RowSums> dk;
  std::vector<RowSums> dv;
};

/// What the products of one head of a document read. A tensor is the head;
/// blocks lie along the contraction: along a row, or `down` the tokens.
class HeadOperands {
 public:
  HeadOperands(const AttentionFormats& formats, std::string core, size_t number)
      : formats_(formats), core_(std::move(core)), number_(number) {}

  /// `place`: "scores/fprop/left". Nothing is done to an operand without a
  /// description.
  Matrix<double> Read(const std::optional<formats::Quantization>& quantization,
                      MatrixView<const float> values, bool down,
                      const char* place) const {
    Matrix<double> result(values.rows(), values.cols());
    const auto copy = [&](const auto& value_at) {
      for (size_t i = 0; i < values.rows(); ++i) {
        for (size_t j = 0; j < values.cols(); ++j)
          result(i, j) = value_at(i, j);
      }
    };
    if (!quantization) {
      copy([&](size_t i, size_t j) {
        return static_cast<double>(values(i, j));
      });
      return result;
    }
    const Matrix<float> turned = down ? Transposed(values) : Matrix<float>();
    const ScalarTensor tensor = ScalarQuantize(down ? turned.view() : values,
                                               *quantization, StateAt(place));
    copy([&](size_t i, size_t j) {
      if (down) std::swap(i, j);
      return static_cast<double>(tensor.codes(i, j)) *
             static_cast<double>(tensor.ScaleAt(i, j).decode) *
             static_cast<double>(tensor.tensor_scale);
    });
    return result;
  }
  Matrix<Uncertain> Read(
      const std::optional<formats::Quantization>& quantization,
      const Matrix<Uncertain>& values, bool down, const char* place) const {
    Matrix<Uncertain> result = Transposed(values.cview());
    if (!down || !quantization) result.CopyFrom(values);
    if (!quantization) return result;
    result = QuantizedUncertain(result, *quantization, StateAt(place));
    return down ? Transposed(result.cview()) : std::move(result);
  }

 private:
  formats::TensorState StateAt(const char* place) const {
    return StateOfTensor(formats_.seed, formats_.step, core_ + place, number_);
  }

  const AttentionFormats& formats_;
  const std::string core_;
  const size_t number_;
};

/// One layer's core.
class CoreOracle {
 public:
  CoreOracle(const StepRecord& record, const model::ModelConfig& config,
             std::string attention, const corpus::Batch& batch, Grid grid,
             ReportSink& sink, const AttentionFormats& formats)
      : formats_(formats),
        record_(record),
        c_(config),
        name_(std::move(attention)),
        batch_(batch),
        grid_(grid),
        sink_(sink),
        scale_(static_cast<double>(OracleSoftmaxScale(config))) {}

  void Run() {
    Assemble();
    CheckCore();
  }

 private:
  MatrixView<const float> Of(const std::string& tensor) const {
    return record_.At(name_ + tensor).values.view();
  }
  size_t value_stride() const { return c_.qk_nope_head_dim + c_.v_head_dim; }

  void Assemble();
  void CheckCore();
  void CheckHead(size_t begin, size_t end, size_t head);
  void CheckQuantizedHead(size_t begin, size_t end, size_t head);
  void CompareHead(size_t begin, size_t head, const HeadSums& sums,
                   size_t more);
  void Probabilities();
  void ScoreGradients(const Uncertain* p_row, const Uncertain* read);
  void DotsWith(const float* left, size_t width, size_t keys,
                const std::vector<const float*>& rows,
                std::vector<Estimate>& dots) const;

  const AttentionFormats& formats_;
  const StepRecord& record_;
  const model::ModelConfig& c_;
  const std::string name_;
  const corpus::Batch& batch_;
  const Grid grid_;
  ReportSink& sink_;
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

/// Queries and keys as the core reads them, from what was announced.
void CoreOracle::Assemble() {
  const size_t nope = c_.qk_nope_head_dim;
  const size_t rope = c_.qk_rope_head_dim;
  const size_t width = c_.qk_head_dim();
  const MatrixView<const float> query =
      Of(c_.q_lora_rank == 0 ? "wq_output" : "wq_b_output");
  const MatrixView<const float> q_pe = Of("q_pe_rotated_output");
  const MatrixView<const float> k_pe = Of("k_pe_rotated_output");
  expanded_ = Of("wkv_b_output");
  dout_ = Of("wo_dgrad");
  queries_.Resize(q_pe.rows(), c_.n_heads * width);
  keys_.Resize(q_pe.rows(), c_.n_heads * width);
  for (size_t t = 0; t < q_pe.rows(); ++t) {
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

void CoreOracle::CheckCore() {
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
void CoreOracle::CheckHead(size_t begin, size_t end, size_t head) {
  if (formats_.precision.quantizes()) {
    return CheckQuantizedHead(begin, end, head);
  }
  const size_t width = c_.qk_head_dim();
  const size_t v_width = c_.v_head_dim;
  const size_t v_first = head * value_stride() + c_.qk_nope_head_dim;
  key_rows_.clear();
  value_rows_.clear();
  HeadSums sums(end - begin, width, v_width);
  for (size_t i = begin; i < end; ++i) {
    key_rows_.push_back(keys_.Row(i) + head * width);
    value_rows_.push_back(expanded_.Row(i) + v_first);
    const size_t keys = i - begin + 1;
    const float* query = queries_.Row(i) + head * width;
    const float* dout = dout_.Row(i) + head * v_width;
    DotsWith(query, width, keys, key_rows_, dots_);
    Probabilities();
    DotsWith(dout, v_width, keys, value_rows_, dots_);
    ScoreGradients(p_.data(), p_.data());
    for (size_t j = 0; j < keys; ++j) {
      sums.out[i - begin].Add(p_[j], value_rows_[j]);
      sums.dq[i - begin].Add(ds_[j], key_rows_[j]);
      sums.dv[j].Add(p_[j], dout);
      sums.dk[j].Add(ds_[j], query);
    }
  }
  CompareHead(begin, head, sums, 0);
}

/// The same where the recipe quantises. Every key counts: what a scale that is
/// NaN makes of a masked score is no zero.
void CoreOracle::CheckQuantizedHead(size_t begin, size_t end, size_t head) {
  const size_t tokens = end - begin;
  const auto of_head = [&](MatrixView<const float> x, size_t first,
                           size_t width) {
    return x.Rows(begin, tokens).Cols(first, width);
  };
  const size_t width = c_.qk_head_dim();
  const size_t v_width = c_.v_head_dim;
  const auto q = of_head(queries_.view(), head * width, width);
  const auto k = of_head(keys_.view(), head * width, width);
  const auto v =
      of_head(expanded_, head * value_stride() + c_.qk_nope_head_dim, v_width);
  const auto dout = of_head(dout_, head * v_width, v_width);
  const precision::AttentionPrecision& f = formats_.precision;
  const HeadOperands operands(formats_, name_ + "inner_attention.",
                              begin * c_.n_heads + head);
  const std::optional<formats::Quantization> none;

  const auto q_of_s = operands.Read(f.q, q, false, "scores/fprop/left");
  const auto k_of_s = operands.Read(f.k, k, false, "scores/fprop/right");
  Matrix<Uncertain> p(tokens, tokens);
  for (size_t i = 0; i < tokens; ++i) {
    dots_.resize(i + 1);
    QuantizedDots(q_of_s.Row(i), k_of_s, dots_);
    Probabilities();
    std::copy_n(p_.data(), i + 1, p.Row(i));
  }
  const auto p_of_o = operands.Read(f.p, p, false, "values/fprop/left");
  const auto v_of_o = operands.Read(f.v, v, true, "values/fprop/right");
  // Backward a product is quantised if its gradient is.
  const auto& dv_p = f.d_out ? f.p : none;
  const auto& dp_v = f.d_out ? f.v : none;
  const auto& dq_k = f.d_scores ? f.k : none;
  const auto& dk_q = f.d_scores ? f.q : none;
  const auto p_of_dv = operands.Read(dv_p, p, true, "values/wgrad/right");
  const auto do_of_dv = operands.Read(f.d_out, dout, true, "values/wgrad/left");
  const auto do_of_dp =
      operands.Read(f.d_out, dout, false, "values/dgrad/left");
  const auto v_of_dp = operands.Read(dp_v, v, false, "values/dgrad/right");
  Matrix<Uncertain> ds(tokens, tokens);
  for (size_t i = 0; i < tokens; ++i) {
    dots_.resize(i + 1);
    QuantizedDots(do_of_dp.Row(i), v_of_dp, dots_);
    ScoreGradients(p.Row(i), p_of_o.Row(i));
    std::copy_n(ds_.data(), i + 1, ds.Row(i));
  }
  const auto ds_of_dq =
      operands.Read(f.d_scores, ds, false, "scores/dgrad/left");
  const auto k_of_dq = operands.Read(dq_k, k, true, "scores/dgrad/right");
  const auto ds_of_dk =
      operands.Read(f.d_scores, ds, true, "scores/wgrad/left");
  const auto q_of_dk = operands.Read(dk_q, q, true, "scores/wgrad/right");
  HeadSums sums(tokens, width, v_width);
  for (size_t i = 0; i < tokens; ++i) {
    for (size_t j = 0; j < tokens; ++j) {
      sums.out[i].Add(p_of_o(i, j), v_of_o.Row(j));
      sums.dq[i].Add(ds_of_dq(i, j), k_of_dq.Row(j));
      sums.dv[j].Add(p_of_dv(i, j), do_of_dv.Row(i));
      sums.dk[j].Add(ds_of_dk(i, j), q_of_dk.Row(i));
    }
  }
  CompareHead(begin, head, sums, kOfScales);
}

void CoreOracle::CompareHead(size_t begin, size_t head, const HeadSums& sums,
                             size_t more) {
  const auto compare = [&](MatrixView<const float> values, size_t first,
                           size_t width, const std::vector<RowSums>& rows,
                           Comparison& comparison) {
    for (size_t t = 0; t < rows.size(); ++t) {
      for (size_t c = 0; c < width; ++c) {
        comparison.Add(begin + t, first + c, values(begin + t, first + c),
                       rows[t].At(c, more));
      }
    }
  };
  const size_t width = c_.qk_head_dim();
  const size_t v_width = c_.v_head_dim;
  compare(Of("inner_attention_output"), head * v_width, v_width, sums.out,
          output_);
  compare(Of("inner_attention.q_gradient"), head * width, width, sums.dq,
          dqueries_);
  compare(Of("inner_attention.k_gradient"), head * width, width, sums.dk,
          dkeys_);
  compare(Of("wkv_b_gradient"), head * value_stride() + c_.qk_nope_head_dim,
          v_width, sums.dv, dvalues_);
}

/// dots[j] = left . rows[j] for the first `keys` rows.
void CoreOracle::DotsWith(const float* left, size_t width, size_t keys,
                          const std::vector<const float*>& rows,
                          std::vector<Estimate>& dots) const {
  dots.resize(keys);
  for (size_t j = 0; j < keys; j += kDotLanes) {
    DotRows(left, &rows[j], std::min(kDotLanes, keys - j), width, &dots[j]);
  }
  for (Estimate& dot : dots) dot = Overflowed32(dot);
}

/// p_ of one query, from dots_. That all exponents are shifted alike cancels;
/// what remains is each one's own error, and that of their sum.
void CoreOracle::Probabilities() {
  const size_t keys = dots_.size();
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

/// ds_ of one query, from its probabilities, dots_ being dp:
/// ds = scale * (p * (dp - sum(dp * read))), `read` what multiplied V.
void CoreOracle::ScoreGradients(const Uncertain* p_row, const Uncertain* read) {
  const size_t keys = dots_.size();
  // Its probability is 1, its dp the mean: no rounding.
  if (keys == 1 && std::isfinite(p_row[0].exact * dots_[0].exact) &&
      read[0].exact == 1.0 && read[0].bound == 0.0) {
    ds_.assign(1, {});
    return;
  }
  Estimate mean;
  double size = 0.0;
  double variance = 0.0;
  for (size_t j = 0; j < keys; ++j) {
    const Uncertain& p = read[j];
    const Estimate& dp = dots_[j];
    const double dp_size = std::fabs(dp.exact);
    mean.exact += dp.exact * p.exact;
    mean.bound += dp_size * p.bound + (p.exact + p.bound) * dp.bound;
    size += dp_size * p.exact;
    variance += dp_size * dp_size * p.variance +
                p.exact * p.exact * dp.noise * dp.noise +
                kRoundingVariance * mean.exact * mean.exact;
  }
  const size_t more = read == p_row ? 0 : kOfScales;
  mean.bound += Gamma(keys + 1 + more) * (size + mean.bound);
  mean.noise = std::sqrt(variance);
  ds_.resize(keys);
  for (size_t j = 0; j < keys; ++j) {
    const Estimate p = {.exact = p_row[j].exact,
                        .bound = p_row[j].bound,
                        .noise = std::sqrt(p_row[j].variance)};
    const Estimate rest = Rounded32(Difference(dots_[j], mean));
    ds_[j] = Uncertain(Rounded32(Product(p, rest) * scale_, 2));
  }
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

void CheckAttentionCore(const StepRecord& record,
                        const model::ModelConfig& config,
                        const std::string& attention,
                        const corpus::Batch& batch, Grid activations,
                        ReportSink& sink, const AttentionFormats& formats) {
  CoreOracle(record, config, attention, batch, activations, sink, formats)
      .Run();
}

}  // namespace isoloss::oracle
