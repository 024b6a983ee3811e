#include <fmt/format.h>

#include <string>
#include <vector>

#include "gpu_figures.h"
#include "gpu_peer.h"
#include "gpu_product.h"
#include "isoloss/kernels/gemm.h"
#include "measure.h"
#include "products.h"

namespace isoloss::bench {
namespace {

constexpr Precision kPrecisions[] = {Precision::kBf16, Precision::kMxfp8};

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
    const auto begin = [problem = product.Problem({precision}), &gpu] {
      kernels::GemmBatch({&problem, 1}, gpu);
    };
    begin();
    product.Compare({precision}, timed.differences.emplace_back());
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
  GpuExperts experts = MakeGpuExperts(gpu);
  std::vector<Figure> figures;
  for (const Precision precision : kPrecisions) {
    figures.push_back(
        ExpertFigure(experts, {precision}, PrecisionName(precision), 40, gpu));
  }
  return figures;
}

}  // namespace isoloss::bench
