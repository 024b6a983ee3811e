#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu_figures.h"
#include "gpu_peer.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/gemm.h"
#include "measure.h"
#include "products.h"

namespace isoloss::bench {
namespace {

constexpr Precision kPrecisions[] = {Precision::kBf16, Precision::kMxfp8};

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

/// y = x W^T on the GPU.
class GpuProduct {
 public:
  GpuProduct(const GemmSize& size, Executor& gpu)
      : host_x_(Noise(size.m, size.k, 0, gpu)),
        host_w_(Noise(size.n, size.k, 1, gpu)),
        x_(CopyFor(gpu, host_x_)),
        w_(CopyFor(gpu, host_w_)),
        y_(RoomFor(gpu, size.m, size.n)) {}

  MatrixView<const float> x() const { return x_.view(); }
  MatrixView<const float> w() const { return w_.view(); }
  Matrix<float>& y() { return y_; }

  kernels::GemmProblem Problem(Precision precision) {
    return ProblemOf(precision, x_.cview(), w_.cview(), y_.view());
  }

  /// Compares some elements of y with the CPU's: each depends on one row of x
  /// and one of W only.
  void Compare(Precision precision, Differences& differences) const {
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
    kernels::Gemm(ProblemOf(precision, x.cview(), w.cview(), y.view()));
    for (size_t i = 0; i < kRows; ++i) {
      const std::vector<float> row = HostRow(y_, row_of(i, y_.rows()));
      for (size_t j = 0; j < kRows; ++j) {
        differences.Compare({&row[row_of(j, y_.cols())], 1}, {&y(i, j), 1});
      }
    }
  }

 private:
  static kernels::GemmProblem ProblemOf(Precision precision,
                                        MatrixView<const float> x,
                                        MatrixView<const float> w,
                                        MatrixView<float> y) {
    const formats::Quantization* const mx =
        precision == Precision::kMxfp8 ? &Mxfp8() : nullptr;
    kernels::GemmProblem problem;
    problem.a = {.values = x, .quantization = mx};
    problem.b = {.values = w, .quantization = mx};
    problem.c = y;
    problem.rounding = kernels::Rounding::kBf16;
    return problem;
  }

  Matrix<float> host_x_, host_w_;
  Matrix<float> x_, w_, y_;
};

/// Seconds of one size, by precision and by cuBLAS, and what differs.
struct Timed {
  std::vector<double> ours;
  double cublas = 0.0;
  std::vector<Differences> differences;
};

Timed TimeProduct(const GemmSize& size, Executor& gpu, Cublas& cublas) {
  GpuProduct product(size, gpu);
  Timed timed;
  std::vector<Work> works;
  for (const Precision precision : kPrecisions) {
    const auto begin = [problem = product.Problem(precision), &gpu] {
      kernels::GemmBatch({&problem, 1}, gpu);
    };
    begin();
    product.Compare(precision, timed.differences.emplace_back());
    works.push_back(WorkOf(gpu, begin));
  }
  if (cublas.problem().empty()) {
    works.push_back(
        {[&] { cublas.Begin(product.x(), product.w(), product.y().view()); },
         [&] { cublas.Wait(); }});
  }
  timed.ours = Seconds(works);
  if (cublas.problem().empty()) {
    timed.cublas = timed.ours.back();
    timed.ours.pop_back();
  }
  return timed;
}

std::string TeraFlops(double flops, double seconds) {
  return fmt::format("{:.1f} TFLOP/s", 1e-12 * flops / seconds);
}

/// Returns a figure of one size for each precision.
std::vector<Figure> SizeFigures(size_t extent, Executor& gpu, Cublas& cublas) {
  const GemmSize size = {extent, extent, extent};
  const Timed timed = TimeProduct(size, gpu, cublas);
  std::vector<Figure> figures;
  for (size_t i = 0; i < std::size(kPrecisions); ++i) {
    figures.push_back({fmt::format("GEMM {} in {}, of cuBLAS FP32", size.name(),
                                   PrecisionName(kPrecisions[i])),
                       timed.cublas / timed.ours[i], 0.98,
                       TeraFlops(size.flops(), timed.ours[i]),
                       timed.differences[i]});
  }
  return figures;
}

/// Returns a figure of the sizes of the grid with so many rows, for each
/// precision.
std::vector<Figure> GridFigures(size_t rows, Executor& gpu, Cublas& cublas) {
  std::vector<std::vector<double>> ratios(std::size(kPrecisions));
  std::vector<std::vector<double>> speeds(std::size(kPrecisions));
  std::vector<Differences> differences(std::size(kPrecisions));
  for (const GemmSize& size : GridSizes()) {
    if (size.m != rows) continue;
    const Timed timed = TimeProduct(size, gpu, cublas);
    for (size_t i = 0; i < std::size(kPrecisions); ++i) {
      ratios[i].push_back(timed.cublas / timed.ours[i]);
      speeds[i].push_back(1e-12 * size.flops() / timed.ours[i]);
      differences[i].wrong += timed.differences[i].wrong;
      differences[i].compared += timed.differences[i].compared;
    }
  }
  std::vector<Figure> figures;
  for (size_t i = 0; i < std::size(kPrecisions); ++i) {
    figures.push_back(
        {fmt::format("grid of M = {} in {}, of cuBLAS FP32, median", rows,
                     PrecisionName(kPrecisions[i])),
         Median(ratios[i]), 1.0,
         fmt::format("{:.1f} TFLOP/s", Median(speeds[i])), differences[i]});
  }
  return figures;
}

void Append(std::vector<Figure> more, std::vector<Figure>& figures) {
  figures.insert(figures.end(), more.begin(), more.end());
}

}  // namespace

std::vector<Figure> ProductFigures(Executor& gpu) {
  Cublas cublas;
  std::vector<Figure> figures;
  Append(SizeFigures(4096, gpu, cublas), figures);
  Append(SizeFigures(8192, gpu, cublas), figures);
  Append(GridFigures(1024, gpu, cublas), figures);
  Append(GridFigures(4096, gpu, cublas), figures);
  return figures;
}

std::vector<Figure> ExpertFigures(Executor& gpu) {
  constexpr size_t kExperts = 64;
  constexpr size_t kMeanRows = 24576 / kExperts;
  std::vector<std::unique_ptr<GpuProduct>> products;
  double flops = 0.0;
  for (size_t expert = 0; expert < kExperts; ++expert) {
    // Pairs have the mean.
    const size_t off = (expert / 2 * 29) % 193;
    const GemmSize size = {expert % 2 == 0 ? kMeanRows + off : kMeanRows - off,
                           1408, 2048};
    flops += size.flops();
    products.push_back(std::make_unique<GpuProduct>(size, gpu));
  }
  std::vector<Figure> figures;
  for (const Precision precision : kPrecisions) {
    std::vector<kernels::GemmProblem> problems;
    for (auto& product : products) {
      problems.push_back(product->Problem(precision));
    }
    const auto begin = [&] { kernels::GemmBatch(problems, gpu); };
    begin();
    Differences differences;
    for (const auto& product : products) {
      product->Compare(precision, differences);
    }
    const Work work = WorkOf(gpu, begin);
    const double seconds = Seconds({&work, 1}).front();
    figures.push_back({fmt::format("64 experts of the 16B in {}, TFLOP/s",
                                   PrecisionName(precision)),
                       1e-12 * flops / seconds, 40, TeraFlops(flops, seconds),
                       differences});
  }
  return figures;
}

}  // namespace isoloss::bench
