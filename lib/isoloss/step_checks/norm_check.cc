#include "isoloss/step_checks/norm_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/oracle/estimate_math.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Exactly;
using oracle::Grid;
using oracle::Rounded32;

MatrixView<const float> ColumnsOf(const StepInputs& inputs,
                                  const TensorColumns& columns) {
  const MatrixView<const float> values = inputs.Values(columns.name);
  return columns.count == 0 ? values
                            : values.Cols(columns.first, columns.count);
}

/// Returns the factors: the gains, quantised if the recipe says so.
Matrix<float> GainsOf(const StepInputs& inputs, const NormPlace& place) {
  const MatrixView<const float> weight = inputs.Values(place.name + "_weight");
  const auto& quantization = inputs.recipe.recipe().norm_gains;
  if (quantization) {
    const formats::TensorState state = oracle::StateOfTensor(
        inputs.seed, inputs.step, place.name + "/fprop/right", 0);
    return oracle::ScalarDequantize(
        oracle::ScalarQuantize(weight, *quantization, state), weight.cols());
  }
  Matrix<float> gains(1, weight.cols());
  std::copy_n(weight.Row(0), weight.cols(), gains.Row(0));
  return gains;
}

/// Returns r of one row.
Estimate InverseRoot(const float* x, size_t width, float eps) {
  const auto d = static_cast<double>(width);
  const Estimate squares = oracle::Overflowed32(oracle::Dot(x, x, width));
  const Estimate mean = Rounded32(squares * (1.0 / d));
  const Estimate inside = Rounded32(mean + Exactly(static_cast<double>(eps)));
  return Rounded32(
      oracle::Quotient(Exactly(1.0), Rounded32(SquareRoot(inside))));
}

/// Computes the gradients of one row.
class RowBackward {
 public:
  /// `r` is the row's InverseRoot.
  RowBackward(const float* x, const float* dy, const float* weight,
              size_t width, const Estimate& r)
      : x_(x), r_(r) {
    g_.reserve(width);
    oracle::Sum32 dot;
    for (size_t i = 0; i < width; ++i) {
      g_.push_back(Rounded32(Exactly(static_cast<double>(dy[i]) *
                                     static_cast<double>(weight[i]))));
      dot.Add(Product(g_[i], X(i)));
    }
    const Estimate factor =
        Rounded32(Product(r_, r_), 2) * (1.0 / static_cast<double>(width));
    // The terms' own products are rounded unless they are fused.
    c_ = Rounded32(Product(factor, dot.Value(/*roundings=*/1)));
  }

  Estimate X(size_t i) const { return Exactly(static_cast<double>(x_[i])); }
  /// Returns dx before it is rounded to the grid.
  template <typename Number>
  Number Dx(size_t i) const {
    const Number cx = Rounded32(Product(Number(c_), Number(X(i))));
    const Number inner = Difference(Number(g_[i]), cx);
    return Rounded32(Product(Number(r_), Rounded32(inner)));
  }

 private:
  const float* x_;
  std::vector<Estimate> g_;  // dy * weight
  Estimate r_;
  Estimate c_;
};

/// Returns what an element of a row adds to the weight's gradient.
Estimate WeightTerm(float x, float dy, const Estimate& r) {
  return Product(
      Rounded32(Exactly(static_cast<double>(dy) * static_cast<double>(x))), r);
}

/// The layer gets the output of the module `below`.
void AddPlacesOfLayer(const model::ModelConfig& config,
                      const std::string& layer, const std::string& below,
                      std::vector<NormPlace>& places) {
  const std::string attention = layer + ".attention";
  const std::string middle = layer + ".attention_residual";
  const std::string incoming = attention + ".wo_gradient";
  places.push_back({.name = layer + ".attention_norm",
                    .in = {below + "_output"},
                    .out = {layer + ".attention_norm_output"},
                    .out_gradient = {layer + ".attention_norm_gradient"},
                    .in_gradient = {below + "_gradient"},
                    .addend = incoming});
  if (config.q_lora_rank > 0) {
    places.push_back({.name = attention + ".q_norm",
                      .in = {attention + ".wq_a_output"},
                      .out = {attention + ".q_norm_output"},
                      .out_gradient = {attention + ".wq_b_dgrad"},
                      .in_gradient = {attention + ".wq_a_gradient"},
                      .addend = ""});
  }
  const size_t latent = config.kv_lora_rank;
  places.push_back({.name = attention + ".kv_norm",
                    .in = {attention + ".wkv_a_output", 0, latent},
                    .out = {attention + ".kv_norm_output"},
                    .out_gradient = {attention + ".wkv_b_dgrad"},
                    .in_gradient = {attention + ".wkv_a_gradient", 0, latent},
                    .addend = ""});
  places.push_back({.name = layer + ".ffn_norm",
                    .in = {middle + "_output"},
                    .out = {layer + ".ffn_norm_output"},
                    .out_gradient = {layer + ".ffn_norm_gradient"},
                    .in_gradient = {incoming},
                    .addend = layer + "_gradient"});
}

}  // namespace

std::vector<NormPlace> NormPlaces(const model::ModelConfig& config) {
  std::vector<NormPlace> places;
  std::string below = "tok_embeddings";
  for (size_t n = 0; n < config.n_layers; ++n) {
    const std::string layer = "layers." + std::to_string(n);
    AddPlacesOfLayer(config, layer, below, places);
    below = layer;
  }
  places.push_back({.name = "norm",
                    .in = {below + "_output"},
                    .out = {"norm_output"},
                    .out_gradient = {"norm_gradient"},
                    .in_gradient = {below + "_gradient"},
                    .addend = ""});
  return places;
}

void CheckNormForward(const StepInputs& inputs, const NormPlace& place,
                      ReportSink& sink) {
  const MatrixView<const float> x = ColumnsOf(inputs, place.in);
  const MatrixView<const float> y = ColumnsOf(inputs, place.out);
  const Matrix<float> w = GainsOf(inputs, place);
  const auto eps = static_cast<float>(inputs.config.norm_eps);
  const oracle::Sample sample = inputs.SampleOf(place.out.name);
  Comparison comparison(inputs.activations);
  for (size_t t = 0; t < x.rows(); ++t) {
    if (!sample.Sees(t)) continue;
    const Estimate r = InverseRoot(x.Row(t), x.cols(), eps);
    sample.ForEachIn(t, [&](size_t, size_t i) {
      comparison.AddResult(t, i, y(t, i), [&]<typename Number>() {
        const Number scaled =
            Rounded32(Number(r) * static_cast<double>(x(t, i)));
        const Number value = scaled * static_cast<double>(w(0, i));
        // On FP32's grid the last operation's rounding is the tensor's own.
        return inputs.activations == Grid::kBf16 ? Rounded32(value) : value;
      });
    });
  }
  comparison.AddUnseen(sample);
  sink.Add(place.out.name, comparison);
}

void CheckNormBackward(const StepInputs& inputs, const NormPlace& place,
                       ReportSink& sink) {
  const MatrixView<const float> x = ColumnsOf(inputs, place.in);
  const MatrixView<const float> dy = ColumnsOf(inputs, place.out_gradient);
  const MatrixView<const float> dx = ColumnsOf(inputs, place.in_gradient);
  const Matrix<float> w = GainsOf(inputs, place);
  const MatrixView<const float> dw = inputs.Values(place.name + "_wgrad");
  MatrixView<const float> addend;
  if (!place.addend.empty()) addend = inputs.Values(place.addend);
  const auto eps = static_cast<float>(inputs.config.norm_eps);

  // The tensor may have other columns, which another check looks at.
  const oracle::Sample sample = inputs.sampling.Of(
      place.in_gradient.name + "/" + place.name, dx.rows(), dx.cols());
  Comparison comparison(inputs.activations);
  std::vector<oracle::Sum32> sums(x.cols());
  for (size_t t = 0; t < x.rows(); ++t) {
    const Estimate r = InverseRoot(x.Row(t), x.cols(), eps);
    for (size_t i = 0; i < x.cols(); ++i) {
      sums[i].Add(WeightTerm(x(t, i), dy(t, i), r));
    }
    if (!sample.Sees(t)) continue;
    const RowBackward row(x.Row(t), dy.Row(t), w.Row(0), x.cols(), r);
    sample.ForEachIn(t, [&](size_t, size_t i) {
      const size_t column = place.in_gradient.first + i;
      comparison.AddResult(t, column, dx(t, i), [&]<typename Number>() {
        const Number value = row.Dx<Number>(i);
        if (addend.empty()) return value;
        const Number before = Exactly(static_cast<double>(addend(t, i)));
        return Rounded32(RoundedOnTheWay(inputs.activations, value) + before);
      });
    });
  }
  comparison.AddUnseen(sample);
  sink.Add(place.in_gradient.name, comparison);

  Comparison weights(Grid::kFp32);
  for (size_t i = 0; i < sums.size(); ++i) {
    weights.Add(0, i, dw(0, i), sums[i].Value(/*roundings=*/1));
  }
  sink.Add(place.name + "_wgrad", weights);
}

void AddNormParts(const StepInputs& inputs, std::vector<CheckPart>& parts) {
  for (const NormPlace& place : NormPlaces(inputs.config)) {
    for (const auto check : {CheckNormForward, CheckNormBackward}) {
      parts.emplace_back(
          [place, check](const StepInputs& step, ReportSink& sink) {
            check(step, place, sink);
          });
    }
  }
}

}  // namespace isoloss::step_checks
