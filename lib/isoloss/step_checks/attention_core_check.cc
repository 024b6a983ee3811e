#include "isoloss/step_checks/attention_core_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/factor_sums.h"
#include "isoloss/oracle/uncertain.h"
#include "isoloss/step_checks/attention_head.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Exactly;
using oracle::FactorSums;
using oracle::Gamma;
using oracle::Grid;
using oracle::kRoundingVariance;
using oracle::kTiny;
using oracle::RootOfSquares;
using oracle::Sample;
using oracle::Uncertain;

/// The relative error of the model's Exp is at most 2 ulp.
constexpr double kExpError = 4 * oracle::kUnitRoundoff;

/// Returns the noise of e^x, relative to it, if x has this noise. An error of
/// e^x is not normal where x is uncertain, but has a long tail: a normal one of
/// this size has the same error at kFar standard deviations.
double ExpNoise(double noise) {
  constexpr double kFar = 7.0;        // beyond it once in 10^12 times
  constexpr double kSmall = 0x1p-12;  // where e^x is a line
  constexpr double kMost = 100.0;     // the bound is smaller
  const double far = kFar * noise;
  return far < kSmall ? noise : portable::Expm1(std::min(far, kMost)) / kFar;
}

/// This many queries keep their probabilities at a time.
constexpr size_t kQueries = 64;

/// Returns the estimate of an FP32 chain of the terms. A term may take part in
/// `more` further roundings.
Estimate SumAt(const FactorSums& sums, size_t column, size_t more) {
  const auto at = [&](FactorSums::Figure figure) {
    return sums.sums(figure, column);
  };
  const double input = at(FactorSums::kInput);
  return {
      .exact = at(FactorSums::kExact),
      .bound = input +
               Gamma(sums.terms + 1 + more) * (at(FactorSums::kSize) + input) +
               static_cast<double>(sums.terms) * kTiny,
      .noise = std::sqrt(at(FactorSums::kVariance))};
}

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
        scale_(static_cast<double>(OracleSoftmaxScale(config))),
        seen_queries_(Draw("inner_attention_output")),
        seen_keys_(Draw("inner_attention.k_gradient")) {}

  void Run() {
    Assemble();
    CheckCore();
  }

 private:
  MatrixView<const float> Of(const std::string& tensor) const {
    return record_.At(name_ + tensor).values.view();
  }
  size_t value_stride() const { return c_.qk_nope_head_dim + c_.v_head_dim; }

  /// These are the rows of one document and the columns of one head.
  struct HeadViews {
    MatrixView<const float> q;
    MatrixView<const float> k;
    MatrixView<const float> v;
    MatrixView<const float> dout;
  };

  /// Draws tokens under heads, [tokens, heads].
  Sample Draw(const char* tensor) const {
    const size_t tokens = batch_.tokens.size();
    if (formats_.precision.quantizes()) {
      return formats_.sampling.Few(name_ + tensor, tokens, c_.n_heads,
                                   kQuantizedHeadDraws);
    }
    return formats_.sampling.Of(name_ + tensor, tokens, c_.n_heads);
  }
  void Assemble();
  void CheckCore();
  void AddToSink(const char* tensor, size_t width, const Sample& sample,
                 Comparison& comparison) const;
  void CheckHead(size_t begin, size_t end, size_t head);
  void CheckQuantizedHead(size_t begin, size_t end, size_t head);
  void CompareHead(size_t begin, size_t head, const HeadSums& sums,
                   size_t more);
  void Probabilities();
  void ScoreGradients(const Uncertain* p_row, const Uncertain* read);
  HeadViews ViewsOf(size_t begin, size_t end, size_t head) const;

  const AttentionFormats& formats_;
  const StepRecord& record_;
  const model::ModelConfig& c_;
  const std::string name_;
  const corpus::Batch& batch_;
  const Grid grid_;
  ReportSink& sink_;
  const double scale_;
  const Sample seen_queries_;
  const Sample seen_keys_;

  Matrix<float> queries_;  // [T, H (dn + dr)]
  Matrix<float> keys_;     // [T, H (dn + dr)]
  MatrixView<const float> expanded_;
  MatrixView<const float> dout_;

  Comparison output_{grid_};
  Comparison dqueries_{grid_};
  Comparison dkeys_{grid_};
  Comparison dvalues_{grid_};

  // These belong to the present query and have one element per key that it
  // sees.
  std::vector<Estimate> dots_;
  std::vector<Uncertain> p_;
  std::vector<Uncertain> ds_;
};

/// Assembles queries and keys as the core reads them from announced tensors.
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
  const size_t width = c_.qk_head_dim();
  const size_t v_width = c_.v_head_dim;
  AddToSink("inner_attention_output", v_width, seen_queries_, output_);
  AddToSink("inner_attention.q_gradient", width, seen_queries_, dqueries_);
  AddToSink("inner_attention.k_gradient", width, seen_keys_, dkeys_);
  AddToSink("wkv_b_gradient", v_width, seen_keys_, dvalues_);
}

/// A head has `width` columns of the tensor.
void CoreOracle::AddToSink(const char* tensor, size_t width,
                           const Sample& sample, Comparison& comparison) const {
  AddRest(sample.size() * width, sample, comparison);
  sink_.Add(name_ + tensor, comparison);
}

/// Returns those of tokens [begin, end) that a sample sees under a head,
/// counted from `begin`.
std::vector<size_t> SeenTokens(const Sample& sample, size_t begin, size_t end,
                               size_t head) {
  std::vector<size_t> tokens;
  for (size_t t = begin; t < end; ++t) {
    if (sample.Sees(t, head)) tokens.push_back(t - begin);
  }
  return tokens;
}

/// Verifies document [begin, end) under one head, forward and backward.
void CoreOracle::CheckHead(size_t begin, size_t end, size_t head) {
  if (formats_.precision.quantizes()) {
    return CheckQuantizedHead(begin, end, head);
  }
  const size_t tokens = end - begin;
  const HeadViews views = ViewsOf(begin, end, head);
  HeadSums sums(SeenTokens(seen_queries_, begin, end, head),
                SeenTokens(seen_keys_, begin, end, head), views.q.cols(),
                views.v.cols());
  if (sums.queries.empty() && sums.keys.empty()) return;
  // A sample needs the probabilities of all queries, for whatever keys it has.
  const bool rough = !seen_keys_.all();
  CausalDots scores(views.q, views.k, rough);
  CausalDots dp(views.dout, views.v, rough);
  const Matrix<double> q = Widened(views.q);
  const Matrix<double> k = Widened(views.k);
  const Matrix<double> v = Widened(views.v);
  const Matrix<double> dout = Widened(views.dout);
  size_t query = 0;  // the next one of sums.queries
  Matrix<Uncertain> p(std::min(kQueries, tokens), tokens);
  Matrix<Uncertain> ds(p.rows(), tokens);
  for (size_t first = 0; first < tokens; first += kQueries) {
    const size_t last = std::min(first + kQueries, tokens);
    for (size_t i = first; i < last; ++i) {
      scores.At(i, dots_);
      Probabilities();
      dp.At(i, dots_);
      ScoreGradients(p_.data(), p_.data());
      std::copy_n(p_.data(), i + 1, p.Row(i - first));
      std::copy_n(ds_.data(), i + 1, ds.Row(i - first));
      if (query == sums.queries.size() || sums.queries[query] != i) continue;
      AddFactors(p_.data(), 1, v.view().Rows(0, i + 1), sums.out[query]);
      AddFactors(ds_.data(), 1, k.view().Rows(0, i + 1), sums.dq[query]);
      ++query;
    }
    for (size_t n = 0; n < sums.keys.size() && sums.keys[n] < last; ++n) {
      const size_t j = sums.keys[n];
      const size_t i = std::max(first, j);
      AddFactors(&p(i - first, j), tokens, dout.view().Rows(i, last - i),
                 sums.dv[n]);
      AddFactors(&ds(i - first, j), tokens, q.view().Rows(i, last - i),
                 sums.dk[n]);
    }
  }
  CompareHead(begin, head, sums, 0);
}

CoreOracle::HeadViews CoreOracle::ViewsOf(size_t begin, size_t end,
                                          size_t head) const {
  const auto of_head = [&](MatrixView<const float> x, size_t first,
                           size_t width) {
    return x.Rows(begin, end - begin).Cols(first, width);
  };
  const size_t width = c_.qk_head_dim();
  return {.q = of_head(queries_.view(), head * width, width),
          .k = of_head(keys_.view(), head * width, width),
          .v = of_head(expanded_, head * value_stride() + c_.qk_nope_head_dim,
                       c_.v_head_dim),
          .dout = of_head(dout_, head * c_.v_head_dim, c_.v_head_dim)};
}

/// Does the same for a recipe that quantises. Every key counts, since a masked
/// score under a NaN scale is not zero.
void CoreOracle::CheckQuantizedHead(size_t begin, size_t end, size_t head) {
  const size_t tokens = end - begin;
  if (SeenTokens(seen_queries_, begin, end, head).empty()) return;
  const auto [q, k, v, dout] = ViewsOf(begin, end, head);
  const precision::AttentionPrecision& f = formats_.precision;
  const HeadOperands operands(formats_, name_ + "inner_attention.",
                              begin * c_.n_heads + head);
  const std::optional<formats::Quantization> none;

  const auto q_of_s = operands.Read(f.q, q, false, "scores/fprop/left");
  const auto k_of_s = operands.Read(f.k, k, false, "scores/fprop/right");
  Matrix<Uncertain> p(tokens, tokens);
  for (size_t i = 0; i < tokens; ++i) {
    dots_.resize(i + 1);
    QuantizedDots(q_of_s.Row(i), k_of_s, q.cols(), dots_);
    Probabilities();
    std::copy_n(p_.data(), i + 1, p.Row(i));
  }
  const auto p_of_o = operands.Read(f.p, p, false, "values/fprop/left");
  const auto v_of_o = operands.Read(f.v, v, true, "values/fprop/right");
  // In the backward pass a product is quantised if its gradient is.
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
    QuantizedDots(do_of_dp.Row(i), v_of_dp, v.cols(), dots_);
    ScoreGradients(p.Row(i), p_of_o.Row(i));
    std::copy_n(ds_.data(), i + 1, ds.Row(i));
  }
  const auto ds_of_dq =
      operands.Read(f.d_scores, ds, false, "scores/dgrad/left");
  const auto k_of_dq = operands.Read(dq_k, k, true, "scores/dgrad/right");
  const auto ds_of_dk =
      operands.Read(f.d_scores, ds, true, "scores/wgrad/left");
  const auto q_of_dk = operands.Read(dk_q, q, true, "scores/wgrad/right");
  std::vector<size_t> all(tokens);
  std::iota(all.begin(), all.end(), size_t{0});
  HeadSums sums(all, all, q.cols(), v.cols());
  for (size_t t = 0; t < tokens; ++t) {
    AddFactors(p_of_o.Row(t), 1, v_of_o.view(), sums.out[t]);
    AddFactors(ds_of_dq.Row(t), 1, k_of_dq.view(), sums.dq[t]);
    AddFactors(&p_of_dv(0, t), tokens, do_of_dv.view(), sums.dv[t]);
    AddFactors(&ds_of_dk(0, t), tokens, q_of_dk.view(), sums.dk[t]);
  }
  CompareHead(begin, head, sums, kOfScales);
}

void CoreOracle::CompareHead(size_t begin, size_t head, const HeadSums& sums,
                             size_t more) {
  const auto compare = [&](MatrixView<const float> values, size_t first,
                           size_t width, const std::vector<size_t>& tokens,
                           const std::vector<FactorSums>& rows,
                           Comparison& comparison) {
    for (size_t n = 0; n < rows.size(); ++n) {
      const size_t t = begin + tokens[n];
      for (size_t c = 0; c < width; ++c) {
        comparison.Add(t, first + c, values(t, first + c),
                       SumAt(rows[n], c, more));
      }
    }
  };
  const size_t width = c_.qk_head_dim();
  const size_t v_width = c_.v_head_dim;
  compare(Of("inner_attention_output"), head * v_width, v_width, sums.queries,
          sums.out, output_);
  compare(Of("inner_attention.q_gradient"), head * width, width, sums.queries,
          sums.dq, dqueries_);
  compare(Of("inner_attention.k_gradient"), head * width, width, sums.keys,
          sums.dk, dkeys_);
  compare(Of("wkv_b_gradient"), head * value_stride() + c_.qk_nope_head_dim,
          v_width, sums.keys, sums.dv, dvalues_);
}

/// Computes p_ of one query from dots_. An error that shifts all exponents
/// alike cancels. The own error of each exponent and the error of their sum
/// remain, to which all exponents add theirs.
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
    // The error comes from the subtraction, the scaling and Exp.
    const double error = portable::Expm1(dots_[j].bound * scale_ +
                                         Gamma(2) * std::fabs(x) + kExpError);
    const double exponent_noise =
        RootOfSquares(dots_[j].noise * scale_,
                      std::sqrt(2 * kRoundingVariance * (1 + x * x)));
    const double noise = std::min(ExpNoise(exponent_noise), error);
    p_[j].exact = e;
    p_[j].bound = error;
    p_[j].variance = noise * noise;
    sum += e;
    sum_error += e * error;
    sum_variance += kRoundingVariance * sum * sum + e * e * p_[j].variance;
  }
  const double error_of_sum = sum_error / sum + Gamma(keys);
  const double variance_of_sum = sum_variance / (sum * sum);
  for (Uncertain& p : p_) {
    p.exact /= sum;
    // The reciprocal and the product add two roundings. The last factor is
    // larger than all second-order terms.
    const double error = (p.bound + error_of_sum + Gamma(2)) * (1 + 0x1p-10);
    p.bound = p.exact * error + kTiny;
    // The own error of the exponent is part of the sum's, from which it is
    // taken.
    const double own = p.variance * (1 - 2 * p.exact);
    p.variance = p.exact * p.exact *
                 (std::max(own + variance_of_sum, 0.0) + 2 * kRoundingVariance);
  }
}

/// Computes ds_ of one query from its probabilities and from dots_, which are
/// dp: ds = scale * (p * (dp - sum(dp * read))). V was multiplied by `read`.
void CoreOracle::ScoreGradients(const Uncertain* p_row, const Uncertain* read) {
  const size_t keys = dots_.size();
  // The only key has probability 1 and dp is the mean, so nothing is rounded.
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

}  // namespace isoloss::step_checks
