#include "gpu_product.h"

#include <fmt/format.h>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::bench {
namespace {

/// Returns Bf16Noise, made by all threads.
Matrix<float> Noise(size_t rows, size_t cols, uint64_t stream,
                    Executor& threads) {
  const CounterRng rng(1, stream);
  Matrix<float> values(rows, cols);
  threads.ParallelFor(rows, [&](size_t row) {
    for (size_t col = 0; col < cols; ++col) {
      values(row, col) = formats::RoundToBf16(
          static_cast<float>(rng.Uniform(row * cols + col) - 0.5));
    }
  });
  return values;
}

kernels::GemmProblem ProblemOf(const ProductKind& kind,
                               MatrixView<const float> x,
                               MatrixView<const float> w, MatrixView<float> y) {
  const formats::Quantization* const mx =
      kind.precision == Precision::kMxfp8 ? &Mxfp8() : nullptr;
  kernels::GemmProblem problem;
  problem.a = {.values = x, .quantization = mx};
  problem.b = {.values = w, .quantization = mx};
  problem.c = y;
  problem.rounding = kernels::Rounding::kBf16;
  problem.accumulation = {kind.accumulator};
  return problem;
}

}  // namespace

GpuProduct::GpuProduct(const GemmSize& size, Executor& gpu)
    : host_x_(Noise(size.m, size.k, 0, gpu)),
      host_w_(Noise(size.n, size.k, 1, gpu)),
      x_(CopyFor(gpu, host_x_)),
      w_(CopyFor(gpu, host_w_)),
      y_(RoomFor(gpu, size.m, size.n)) {}

kernels::GemmProblem GpuProduct::Problem(const ProductKind& kind) {
  return ProblemOf(kind, x_.cview(), w_.cview(), y_.view());
}

void GpuProduct::Compare(const ProductKind& kind,
                         Differences& differences) const {
  constexpr size_t kRows = 8;
  const auto row_of = [](size_t i, size_t rows) {
    return i * (rows - 1) / (kRows - 1);
  };
  Matrix<float> x(kRows, x_.cols());
  Matrix<float> w(kRows, w_.cols());
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t k = 0; k < x_.cols(); ++k) {
      x(i, k) = host_x_(row_of(i, x_.rows()), k);
      w(i, k) = host_w_(row_of(i, w_.rows()), k);
    }
  }
  Matrix<float> y(kRows, kRows);
  kernels::Gemm(ProblemOf(kind, x.cview(), w.cview(), y.view()));
  for (size_t i = 0; i < kRows; ++i) {
    const std::vector<float> row = HostRow(y_, row_of(i, y_.rows()));
    for (size_t j = 0; j < kRows; ++j) {
      differences.Compare({&row[row_of(j, y_.cols())], 1}, {&y(i, j), 1});
    }
  }
}

GpuExperts MakeGpuExperts(Executor& gpu) {
  constexpr size_t kExperts = 64;
  constexpr size_t kMeanRows = 24576 / kExperts;
  GpuExperts experts;
  for (size_t expert = 0; expert < kExperts; ++expert) {
    // Pairs have the mean.
    const size_t off = (expert / 2 * 29) % 193;
    const GemmSize size = {expert % 2 == 0 ? kMeanRows + off : kMeanRows - off,
                           1408, 2048};
    experts.flops += size.flops();
    experts.products.push_back(std::make_unique<GpuProduct>(size, gpu));
  }
  return experts;
}

Figure ExpertFigure(GpuExperts& experts, const ProductKind& kind,
                    const std::string& name, double bar, Executor& gpu) {
  std::vector<kernels::GemmProblem> problems;
  for (auto& product : experts.products) {
    problems.push_back(product->Problem(kind));
  }
  const auto begin = [&] { kernels::GemmBatch(problems, gpu); };
  begin();
  Differences differences;
  for (const auto& product : experts.products) {
    product->Compare(kind, differences);
  }
  const Work work = WorkOf(gpu, begin);
  const double seconds = Seconds({&work, 1}).front();
  return {fmt::format("64 experts of the 16B in {}, TFLOP/s", name),
          1e-12 * experts.flops / seconds, bar,
          TeraFlops(experts.flops, seconds), differences};
}

std::string TeraFlops(double flops, double seconds) {
  return fmt::format("{:.1f} TFLOP/s", 1e-12 * flops / seconds);
}

}  // namespace isoloss::bench
