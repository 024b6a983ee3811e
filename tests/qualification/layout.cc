// Errors in how operands and their copies lie in memory.
#include <algorithm>
#include <functional>
#include <utility>

#include "qualification/engine.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using model::GemmTask;
using precision::GemmRole;

constexpr size_t kTile = 32;

/// Quantises in blocks across the contraction axis.
void QuantizeAcross(const formats::Quantization& spec, Matrix<float>& rows) {
  Matrix<float> columns = Transposed(rows.view());
  const size_t whole[] = {columns.cols()};
  QuantizeRows(spec, BlocksOf(whole), columns);
  rows = Transposed(columns.view());
}

/// Every operand of every product has its blocks across the contraction axis.
void BlocksAlongWrongAxis(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches = IsQuantized,
       .after_quantising = [](const Place& place, Matrix<float>& rows) {
         rows = RowsOf(place.operand());
         QuantizeAcross(place.spec(), rows);
       }});
}

/// The copy for dgrad and wgrad is made from the codes of the other one.
void RequantizedTranspose(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && task.role != GemmRole::kFprop;
           },
       .before_quantising =
           [](const Place& place, Matrix<float>& rows) {
             if (place.Is(GemmRole::kDgrad, Side::kLeft)) return;
             QuantizeAcross(place.spec(), rows);
           }});
}

/// Edits the quantised weights of dgrad.
void EditDgradWeights(MutantContext& context,
                      std::function<void(Matrix<float>& rows)> edit) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches =
           [](const GemmTask& task) {
             return IsQuantized(task) && task.role == GemmRole::kDgrad;
           },
       .after_quantising =
           [edit = std::move(edit)](const Place& place, Matrix<float>& rows) {
             if (place.IsWeight()) edit(rows);
           }});
}

/// Rows are checked against the number of columns and the reverse, so what lies
/// beyond the smaller one is never stored.
void StoreMaskSwapped(MutantContext& context) {
  EditDgradWeights(context, [](Matrix<float>& rows) {
    for (size_t i = 0; i < rows.rows(); ++i) {
      for (size_t k = 0; k < rows.cols(); ++k) {
        if (i >= rows.cols() || k >= rows.rows()) rows(i, k) = 0;
      }
    }
  });
}

/// The last quarter of each tile was transposed within itself once too often.
void TileTransposeCorrupts(MutantContext& context) {
  constexpr size_t kHalf = kTile / 2;
  EditDgradWeights(context, [](Matrix<float>& rows) {
    for (size_t i0 = kHalf; i0 + kHalf <= rows.rows(); i0 += kTile) {
      for (size_t k0 = kHalf; k0 + kHalf <= rows.cols(); k0 += kTile) {
        for (size_t i = 0; i < kHalf; ++i) {
          for (size_t k = 0; k < i; ++k) {
            std::swap(rows(i0 + i, k0 + k), rows(i0 + k, k0 + i));
          }
        }
      }
    }
  });
}

/// Until the first update writes it, the copy for dgrad is zero.
void ColumnwiseCopyStaleAfterLoad(MutantContext& context) {
  context.hooks.gemm_engine =
      MakeEngine({.touches =
                      [clock = context.clock](const GemmTask& task) {
                        return IsQuantized(task) &&
                               task.role == GemmRole::kDgrad &&
                               clock->step <= 1;
                      },
                  .after_quantising =
                      [](const Place& place, Matrix<float>& rows) {
                        if (place.IsWeight()) rows.SetZero();
                      }});
}

void TailBlockTakesNeighboursScale(MutantContext& context) {
  context.hooks.gemm_engine = MakeEngine(
      {.touches = IsQuantized,
       .scales = [](const Place& /*place*/, std::span<const Block> blocks,
                    const Matrix<float>& /*rows*/, Matrix<uint8_t>& scales) {
         for (size_t n = 1; n < blocks.size(); ++n) {
           if (blocks[n].end - blocks[n].begin == formats::kMxBlockSize) {
             continue;
           }
           for (size_t i = 0; i < scales.rows(); ++i) {
             scales(i, n) = scales(i, n - 1);
           }
         }
       }});
}

}  // namespace

std::vector<Mutant> LayoutMutants() {
  const std::string group = "layout";
  std::vector<Mutant> mutants = {
      {.name = "blocks_along_wrong_axis",
       .catalogue = 20,
       .group = group,
       .what = "Operands are quantised across the contraction axis",
       .link = "",
       .plant = BlocksAlongWrongAxis},
      {.name = "requantised_transpose",
       .catalogue = 21,
       .group = group,
       .what = "Transposed copies are quantised from quantised data",
       .link = "",
       .plant = RequantizedTranspose},
      {.name = "store_mask_swapped",
       .catalogue = 22,
       .group = group,
       .what = "The transposed weight is stored under a mask with rows and "
               "columns swapped",
       .link = "https://github.com/pytorch/ao/pull/1516",
       .plant = StoreMaskSwapped},
      {.name = "tile_transpose_corrupts",
       .catalogue = 23,
       .group = group,
       .what =
           "A quarter of each tile of the transposed weight is in the wrong "
           "order",
       .link = "https://github.com/mlc-ai/pith-train/pull/74",
       .plant = TileTransposeCorrupts},
      {.name = "columnwise_copy_stale",
       .catalogue = 24,
       .group = group,
       .what = "The copy of the weights for dgrad is zero until the first "
               "update",
       .link = "https://github.com/modelscope/mcore-bridge/issues/125",
       .plant = ColumnwiseCopyStaleAfterLoad},
      {.name = "tail_block_neighbour_scale",
       .catalogue = 25,
       .group = group,
       .what = "A short last block takes the scale of the block before it",
       .link = "",
       .plant = TailBlockTakesNeighboursScale},
  };
  for (Mutant& mutant : mutants) mutant.quantized_products = true;
  return mutants;
}

}  // namespace isoloss::qualification
