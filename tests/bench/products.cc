#include "products.h"

#include <fmt/format.h>

#include <cmath>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::bench {

std::string GemmSize::name() const { return fmt::format("{}x{}x{}", m, n, k); }

std::vector<GemmSize> GridSizes() {
  std::vector<GemmSize> sizes;
  for (const size_t m : {64, 256, 1024, 4096}) {
    for (const size_t n : {128, 256, 512, 1024}) {
      for (const size_t k : {128, 256, 512, 1024}) sizes.push_back({m, n, k});
    }
  }
  return sizes;
}

const char* PrecisionName(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : "mxfp8";
}

const char* PackingName(Packing packing) {
  return packing == Packing::kInCall ? "in_call" : "prepacked";
}

const formats::Quantization& Mxfp8() {
  static const formats::Quantization kSpec{&formats::FormatByName("e4m3")};
  return kSpec;
}

namespace {

const formats::Quantization* SpecOf(Precision precision) {
  return precision == Precision::kMxfp8 ? &Mxfp8() : nullptr;
}

}  // namespace

Matrix<float> Bf16Noise(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(1, stream);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] =
        formats::RoundToBf16(static_cast<float>(rng.Uniform(i) - 0.5));
  }
  return values;
}

LinearProduct::LinearProduct(const GemmSize& size, uint64_t stream)
    : x_(Bf16Noise(size.m, size.k, 2 * stream)),
      w_(Bf16Noise(size.n, size.k, 2 * stream + 1)),
      y_(size.m, size.n) {
  packed_bf16_.Pack({.values = w_.view()});
  packed_mxfp8_.Pack({.values = w_.view(), .quantization = &Mxfp8()});
}

kernels::GemmProblem LinearProduct::Problem(Precision precision,
                                            Packing packing) {
  const formats::Quantization* mx = SpecOf(precision);
  kernels::GemmProblem problem;
  problem.a = {.values = x_.view(), .quantization = mx};
  if (packing == Packing::kBeforehand) {
    problem.packed_b =
        precision == Precision::kBf16 ? &packed_bf16_ : &packed_mxfp8_;
  } else {
    problem.b = {.values = w_.view(), .quantization = mx};
  }
  problem.c = y_.view();
  problem.rounding = kernels::Rounding::kBf16;
  return problem;
}

WeightGradient::WeightGradient(const GemmSize& size)
    : dy_(Bf16Noise(size.k, size.m, 0)),
      x_(Bf16Noise(size.k, size.n, 1)),
      dw_(size.m, size.n) {
  for (size_t end = 256; end < size.k; end += 256) ends_.push_back(end);
  ends_.push_back(size.k);
}

kernels::GemmProblem WeightGradient::Problem(Precision precision) {
  const formats::Quantization* mx = SpecOf(precision);
  kernels::GemmProblem problem;
  problem.a = {dy_.view(), kernels::Contraction::kRows, mx};
  problem.b = {x_.view(), kernels::Contraction::kRows, mx};
  problem.c = dw_.view();
  problem.segment_ends = ends_;
  return problem;
}

std::vector<Routing> Routings() {
  constexpr size_t kExperts = 16;
  constexpr size_t kAssignments = 128 * kExperts;
  const CounterRng popularity(3, 0);
  const CounterRng choice(3, 1);

  std::vector<double> upper_ends;
  double sum = 0.0;
  for (size_t expert = 0; expert < kExperts; ++expert) {
    sum += std::exp(0.6 * (2.0 * popularity.Uniform(expert) - 1.0));
    upper_ends.push_back(sum);
  }
  std::vector<size_t> tokens(kExperts);
  for (size_t i = 0; i < kAssignments; ++i) {
    const double draw = sum * choice.Uniform(i);
    size_t expert = 0;
    while (draw >= upper_ends[expert]) ++expert;
    ++tokens[expert];
  }

  std::vector<size_t> extreme = tokens;
  extreme[2] = 0;
  extreme[5] = 1;
  extreme[7] = 7;
  extreme[11] = 500;
  return {{"routed", tokens}, {"extreme", extreme}};
}

ExpertProducts::ExpertProducts(const Routing& routing) {
  constexpr size_t kDim = 256;
  constexpr size_t kHidden = 128;
  for (const size_t tokens : routing.tokens) {
    for (const GemmSize& size :
         {GemmSize{tokens, kHidden, kDim}, GemmSize{tokens, kHidden, kDim},
          GemmSize{tokens, kDim, kHidden}}) {
      products_.emplace_back(size, products_.size());
      flops_ += size.flops();
    }
  }
}

std::vector<kernels::GemmProblem> ExpertProducts::Problems(Precision precision,
                                                           Packing packing) {
  std::vector<kernels::GemmProblem> problems;
  for (LinearProduct& product : products_) {
    problems.push_back(product.Problem(precision, packing));
  }
  return problems;
}

}  // namespace isoloss::bench
