#include "isoloss/ensembles/benign_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/ensembles/segment_sums.h"

namespace isoloss::ensembles {
namespace {

using model::GemmTask;
using train::Seams;

// The names of random streams below must stay: they are part of the bits of
// every ensemble.

/// Returns 0, 1, …, count - 1 in the index-th of many orders. Order 0 is
/// descending.
std::vector<size_t> OrderOf(size_t count, size_t index) {
  std::vector<size_t> order(count);
  std::iota(order.rbegin(), order.rend(), size_t{0});
  if (index == 0) return order;
  const CounterRng rng(index, StreamId("mutants/benign_order"));
  for (size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[rng.Below(i, i)]);
  }
  return order;
}

void Plain(MatrixView<const float> a, MatrixView<const float> b,
           MatrixView<float> sums) {
  kernels::Gemm({.a = {a, kernels::Contraction::kColumns, nullptr},
                 .b = {b, kernels::Contraction::kColumns, nullptr},
                 .c = sums});
}

Matrix<float> Permuted(MatrixView<const float> rows,
                       std::span<const size_t> order) {
  Matrix<float> result(rows.rows(), rows.cols());
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (size_t k = 0; k < rows.cols(); ++k) result(i, k) = rows(i, order[k]);
  }
  return result;
}

/// Adds products in another order of k.
void OtherOrder(Seams& seams, uint64_t /*seed*/, size_t index) {
  seams.gemm_engine =
      SummedBy([index](MatrixView<const float> a, MatrixView<const float> b,
                       MatrixView<float> sums) {
        const std::vector<size_t> order = OrderOf(a.cols(), index);
        Plain(Permuted(a, order).view(), Permuted(b, order).view(), sums);
      });
}

/// Returns places where k is cut into 2 to 8 parts; they follow from the index.
/// Index 0 cuts in the middle.
std::vector<size_t> CutsOf(size_t depth, size_t index) {
  if (index == 0) return {depth / 2, depth};
  const CounterRng rng(index, StreamId("mutants/benign_cuts"));
  std::vector<size_t> cuts = {depth};
  for (size_t cut = 0; cut <= index % 7; ++cut) {
    cuts.push_back(rng.Below(cut, depth + 1));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// Adds FP32 sums of parts of k.
void SplitK(Seams& seams, uint64_t /*seed*/, size_t index) {
  seams.gemm_engine =
      SummedBy([index](MatrixView<const float> a, MatrixView<const float> b,
                       MatrixView<float> sums) {
        Matrix<float> part(sums.rows(), sums.cols());
        size_t begin = 0;
        for (const size_t end : CutsOf(a.cols(), index)) {
          if (end == begin) continue;
          Plain(a.Cols(begin, end - begin), b.Cols(begin, end - begin),
                part.view());
          begin = end;
          for (size_t i = 0; i < sums.rows(); ++i) {
            for (size_t j = 0; j < sums.cols(); ++j) {
              sums(i, j) += part(i, j);
            }
          }
        }
      });
}

/// Rounds products before they are added, and changes the order of k, too.
/// Products of BF16 or FP8 operands are exact, so their rounding alone changes
/// hardly a bit.
void WithoutFma(Seams& seams, uint64_t /*seed*/, size_t index) {
  seams.gemm_engine = SummedBy([index](MatrixView<const float> a,
                                       MatrixView<const float> b,
                                       MatrixView<float> sums) {
    const std::vector<size_t> order =
        OrderOf(a.cols(), StreamId("mutants/no_fma") + index);
    FoldProducts<float>(
        a, b, order, [](float acc, float term) { return acc + term; }, sums);
  });
}

/// Sums in FP64 and rounds once. It does so for all products, or for a half of
/// them that follows from the index.
void InDouble(Seams& seams, uint64_t /*seed*/, size_t index) {
  const CounterRng rng(index, StreamId("mutants/benign_double"));
  seams.gemm_engine = SummedBy(
      [](MatrixView<const float> a, MatrixView<const float> b,
         MatrixView<float> sums) {
        FoldProducts<double>(
            a, b, {}, [](double acc, double term) { return acc + term; }, sums);
      },
      [rng, index](const GemmTask& task) {
        const uint64_t stream =
            StreamId(task.site) + static_cast<uint64_t>(task.role);
        return index == 0 || rng.Below(stream, 2) == 0;
      });
}

/// Splits k (in the index's order) into runs of 2, 4, 8, … elements. Each run
/// is summed by itself, then the sums are added pairwise.
void Pairwise(Seams& seams, uint64_t /*seed*/, size_t index) {
  seams.gemm_engine = SummedBy([index](MatrixView<const float> a,
                                       MatrixView<const float> b,
                                       MatrixView<float> sums) {
    const size_t leaf = size_t{2} << index % 3;
    std::vector<size_t> order = OrderOf(a.cols(), index / 3);
    if (index < 3) std::reverse(order.begin(), order.end());
    const Matrix<float> left = Permuted(a, order);
    const Matrix<float> right = Permuted(b, order);
    std::vector<size_t> ends;
    for (size_t k = 0; k < a.cols();) {
      k = std::min(k + leaf, a.cols());
      ends.push_back(k);
    }
    kernels::Gemm({.a = {left.view(), kernels::Contraction::kColumns, nullptr},
                   .b = {right.view(), kernels::Contraction::kColumns, nullptr},
                   .c = sums,
                   .segment_ends = ends});
  });
}

/// Every initial weight stays, or becomes one of its neighbours in FP32.
void OneUlp(Seams& seams, uint64_t seed, size_t index) {
  const CounterRng rng(seed ^ (uint64_t{index} << 32),
                       StreamId("mutants/one_ulp"));
  seams.edit_initial_weights = [rng](model::ParameterSet& weights) {
    for (model::Parameter& weight : weights.parameters()) {
      const uint64_t stream = StreamId(weight.name);
      Matrix<float>& values = weight.values;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint64_t ulps =
            rng.Below(stream + weight.first_element + i, 3);  // 0, 1, 2
        float& value = values.data()[i];
        if (value == 0) continue;
        value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) - 1 +
                                     static_cast<uint32_t>(ulps));
      }
    }
  };
}

struct Family {
  const char* name;
  const char* what;
  void (*plant)(Seams& seams, uint64_t seed, size_t index);
};

constexpr Family kFamilies[kBenignFamilies] = {
    {"order", "Products are summed in another order", OtherOrder},
    {"split_k", "Products are summed in parts", SplitK},
    {"no_fma", "Products are summed in another order, without FMA", WithoutFma},
    {"double", "Products are summed in FP64", InDouble},
    {"pairwise", "Products are summed pairwise", Pairwise},
    {"one_ulp", "Initial weights differ in their last bit", OneUlp},
};

}  // namespace

BenignVariant MakeBenignVariant(size_t index, uint64_t seed) {
  const Family& family = kFamilies[index % kBenignFamilies];
  const size_t of_family = index / kBenignFamilies;
  BenignVariant variant = {
      fmt::format("benign_{}_{}", family.name, index), family.what, {}};
  variant.seams.perturbation =
      fmt::format("{} (benign, benign): {}", variant.name, variant.what);
  // With other last bits in the weights, no two members of a family are alike.
  if (of_family > 0) OneUlp(variant.seams, seed, index);
  family.plant(variant.seams, seed, of_family);
  return variant;
}

}  // namespace isoloss::ensembles
