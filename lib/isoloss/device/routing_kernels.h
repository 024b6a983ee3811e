// Kernels of the router: an element is a token. Their definitions are those of
// kernels/route_token.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/device/element_kernels.h"
#include "isoloss/device/kernel.h"
#include "isoloss/kernels/route_token.h"
#include "isoloss/kernels/score_log.h"

namespace isoloss::device {

struct SelectExpertsOfToken {
  kernels::RouterRule rule;
  Input scores;
  const float* bias;
  MatrixView<int32_t> expert_ids;
  MatrixView<char> taken;          ///< [T, E], room
  MatrixView<float> group_scores;  ///< [T, groups], room
  MatrixView<char> kept;           ///< [T, groups], room

  constexpr void operator()(size_t t) const {
    kernels::SelectExpertsOfToken(
        rule, scores.cols(), scores.Row(t), bias, expert_ids.cols(),
        expert_ids.Row(t), taken.Row(t), group_scores.Row(t), kept.Row(t));
  }
};

struct CombineWeightsOfToken {
  kernels::RouterRule rule;
  Input scores;
  MatrixView<const int32_t> expert_ids;
  Output weights;

  constexpr void operator()(size_t t) const {
    kernels::CombineWeightsOfToken(rule, scores.Row(t), expert_ids.Row(t),
                                   expert_ids.cols(), weights.Row(t));
  }
};

struct ScoreBackwardOfToken {
  kernels::RouterRule rule;
  Input scores;
  MatrixView<const int32_t> expert_ids;
  Input dweights;
  Output dlogits;

  constexpr void operator()(size_t t) const {
    kernels::RouterScoreBackwardOfToken(rule, scores.cols(), scores.Row(t),
                                        expert_ids.Row(t), expert_ids.cols(),
                                        dweights.Row(t), dlogits.Row(t));
  }
};

struct EntropyOfToken {
  kernels::ScoreLog log;  ///< whose table lies in the device's memory
  Input scores;
  double* entropies;

  constexpr void operator()(size_t t) const {
    entropies[t] = kernels::ScoreEntropyOf(log, scores.Row(t), scores.cols());
  }
};

}  // namespace isoloss::device
