#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu_figures.h"
#include "gpu_peer.h"
#include "gpu_product.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/cuda/tensor_cores.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/gemm.h"
#include "products.h"

namespace isoloss::bench {
namespace {

/// Returns rows in BF16, two values in a word.
Matrix<float> PairsOf(const Matrix<float>& values) {
  Matrix<float> pairs(values.rows(), values.cols() / 2);
  for (size_t i = 0; i < pairs.rows(); ++i) {
    for (size_t j = 0; j < pairs.cols(); ++j) {
      const uint32_t lower = formats::EncodeBf16(values(i, 2 * j));
      const uint32_t upper = formats::EncodeBf16(values(i, 2 * j + 1));
      pairs(i, j) = std::bit_cast<float>(upper << 16 | lower);
    }
  }
  return pairs;
}

/// Returns a figure of one size for each kind of operand.
std::vector<Figure> SizeFigures(size_t extent,
                                const std::vector<ProductKind>& kinds,
                                Executor& gpu) {
  const GemmSize size = {extent, extent, extent};
  GpuProduct product(size, gpu);
  const Matrix<float> x = CopyFor(gpu, PairsOf(product.host_x()));
  const Matrix<float> w = CopyFor(gpu, PairsOf(product.host_w()));
  Matrix<float> y = RoomFor(gpu, extent, extent / 2);
  Cublas cublas;
  std::vector<Work> works;
  std::vector<Differences> differences;
  for (const ProductKind& kind : kinds) {
    const auto begin = [problem = product.Problem(kind), &gpu] {
      kernels::GemmBatch({&problem, 1}, gpu);
    };
    begin();
    product.Compare(kind, differences.emplace_back());
    works.push_back(WorkOf(gpu, begin));
  }
  const bool has_peer = cublas.problem().empty();
  if (has_peer) {
    works.push_back({[&] { cublas.BeginBf16(x.view(), w.view(), y.view()); },
                     [&] { cublas.Wait(); }});
  }
  const std::vector<double> seconds = Seconds(works);
  std::vector<Figure> figures;
  for (size_t i = 0; i < kinds.size(); ++i) {
    figures.push_back(
        {fmt::format("GEMM {} in {}, {}, of cuBLAS BF16", size.name(),
                     PrecisionName(kinds[i].precision),
                     kinds[i].accumulator->name),
         has_peer ? seconds.back() / seconds[i] : 0.0, 0.5,
         TeraFlops(size.flops(), seconds[i]), differences[i]});
  }
  return figures;
}

}  // namespace

std::vector<Figure> TensorCoreFigures(Executor& gpu) {
  const device::CudaInfo info = device::DescribeCuda(0);
  const kernels::Accumulator* const accumulator =
      device::AccumulatorOfMma(info.major, info.minor);
  if (accumulator == nullptr) return {};
  const std::vector<ProductKind> kinds = {{Precision::kBf16, accumulator},
                                          {Precision::kMxfp8, accumulator}};
  std::vector<Figure> figures = SizeFigures(8192, kinds, gpu);
  for (Figure& figure : SizeFigures(4096, kinds, gpu)) {
    figures.push_back(std::move(figure));
  }
  GpuExperts experts = MakeGpuExperts(gpu);
  for (const ProductKind& kind : kinds) {
    // Three times what FP32 chains are to reach.
    figures.push_back(ExpertFigure(
        experts, kind,
        fmt::format("{}, {}", PrecisionName(kind.precision), accumulator->name),
        120, gpu));
  }
  return figures;
}

}  // namespace isoloss::bench
