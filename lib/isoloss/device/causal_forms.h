// The device's forms of the kernels in causal_kernels.h. Scores and columns of
// heads lie in the device's memory, and so does the list of a wave's blocks:
// nothing is uploaded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/device/causal_kernels.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/table.h"
#include "isoloss/kernels/causal_products.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/score_plan.h"

namespace isoloss::device {

template <auto kEnd>
Table<ScoreBlock, kEnd> TableOf(const kernels::ScoreWave& wave) {
  return TableOf<kEnd>(wave.blocks, wave.there);
}

inline CausalSide SideOf(const kernels::HeadColumns<const float>& columns) {
  // Kernels count the floats of a tile in 32 bits.
  ISOLOSS_ASSERT(columns.matrix.stride() < kLongestStride);
  const auto is_whole = [](size_t count) { return count % kQuad == 0; };
  return {columns, AreQuads(columns.matrix) && is_whole(columns.stride) &&
                       is_whole(columns.offset) && is_whole(columns.width)};
}

/// Calls launch.operator()<n>() for tiles of n columns, as few of them as
/// possible.
template <typename Launch>
void LaunchForWidth(size_t width, const Launch& launch) {
  constexpr size_t kStep = 32;
  constexpr size_t kMost = 96;
  if (width == 0) return;
  const size_t columns = CeilOf(width, CeilOf(width, kMost));
  if (columns <= kStep) return launch.template operator()<kStep>();
  if (columns <= 2 * kStep) return launch.template operator()<2 * kStep>();
  launch.template operator()<kMost>();
}

/// Returns the queries of a wave.
inline CausalRows RowsOf(const kernels::ScoreWave& wave) {
  size_t most_keys = 0;
  for (const ScoreBlock& block : wave.blocks) {
    most_keys = std::max(most_keys, block.keys());
  }
  return {TableOf<&ScoreBlock::rows_end>(wave), most_keys};
}

template <typename Target>
void CausalScoresForm(const kernels::ScoreWave& wave,
                      std::span<const kernels::ScoreProduct> products,
                      Executor& executor) {
  Call<Target> call(executor);
  for (const kernels::ScoreProduct& product : products) {
    call.Launch(CausalScoreTiles{{},
                                 TableOf<&ScoreBlock::score_tiles_end>(wave),
                                 SideOf(product.left),
                                 SideOf(product.right),
                                 product.scores.data()});
  }
}

template <typename Target>
void CausalProductsForm(const kernels::ScoreWave& wave,
                        const kernels::CausalProductList& products,
                        Executor& executor) {
  Call<Target> call(executor);
  const Rounding rounding = products.rounding;
  for (const auto& [scores, right, out] : products.of_queries) {
    LaunchForWidth(out.width, [&, &scores = scores, &right = right,
                               &out = out]<uint32_t kColumns>() {
      call.Launch(CausalOutputTiles<kColumns>{{},
                                              wave.there,
                                              wave.blocks.size(),
                                              scores.data(),
                                              SideOf(right),
                                              out,
                                              rounding});
    });
  }
  for (const auto& [scores, right, sums] : products.of_keys) {
    LaunchForWidth(sums.width, [&, &scores = scores, &right = right,
                                &sums = sums]<uint32_t kColumns>() {
      call.Launch(
          KeySumTiles<kColumns>{{},
                                TableOf<&ScoreBlock::key_tiles_end>(wave),
                                scores.data(),
                                SideOf(right),
                                sums,
                                rounding});
    });
  }
}

template <typename Target>
void CausalSoftmaxForwardForm(const kernels::ScoreWave& wave,
                              std::span<float> scores, float scale,
                              Executor& executor) {
  Call<Target> call(executor);
  call.Launch(SoftmaxForwardRows<CausalSoftmaxRows>{
      {/*has_quads=*/false}, {RowsOf(wave), scores.data()}, scale});
}

template <typename Target>
void CausalSoftmaxBackwardForm(const kernels::ScoreWave& wave,
                               const kernels::CausalSoftmaxGradient& gradient,
                               float scale, Executor& executor) {
  Call<Target> call(executor);
  call.Launch(CausalSoftmaxBackwardRows{{},
                                        RowsOf(wave),
                                        gradient.p.data(),
                                        gradient.read.data(),
                                        gradient.dp.data(),
                                        scale});
}

template <typename Target>
void AddCausalForms(Forms& forms) {
  AddForm(&kernels::CausalScores, &CausalScoresForm<Target>, forms);
  AddForm(&kernels::CausalProducts, &CausalProductsForm<Target>, forms);
  AddForm(&kernels::CausalSoftmaxForward, &CausalSoftmaxForwardForm<Target>,
          forms);
  AddForm(&kernels::CausalSoftmaxBackward, &CausalSoftmaxBackwardForm<Target>,
          forms);
}

}  // namespace isoloss::device
