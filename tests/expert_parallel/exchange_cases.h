// Cases of exchanges between ranks, and everything about one exchange of a
// case: what goes in, and where each row must stand.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/conservation.h"
#include "isoloss/expert_parallel/options.h"
#include "isoloss/expert_parallel/ranked_exchange.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/transport/transport.h"

namespace isoloss::expert_parallel {

inline constexpr size_t kWidth = 40;  // no multiple of 16, of 32 or of 128

enum class Choice { kRandom, kAllToOne, kFewExperts };

struct Case {
  std::string name;
  ExchangeOptions options;
  size_t ranks;
  size_t ranks_per_node = 2;
  size_t replicas = 1;
  size_t units = 1;
  size_t experts = 16;
  size_t slots = 4;
  Choice choice = Choice::kRandom;
  std::string transport = "loop";
  kernels::Rounding rounding = kernels::Rounding::kBf16;
  size_t tokens = 72;
};

ExchangeOptions With(Algorithm algorithm,
                     WeightSite site = WeightSite::kExpertOut,
                     CombineOrder order = CombineOrder::kRank);

/// Every algorithm, weight site and order, on meshes that differ in all sizes.
std::vector<Case> Cases();

/// Activations of either sign and of twelve binades.
Matrix<float> Values(size_t rows, size_t cols, uint64_t stream,
                     kernels::Rounding rounding);

::testing::AssertionResult SameBits(MatrixView<const float> actual,
                                    MatrixView<const float> expected);

/// Everything about one exchange of a case.
struct Harness {
  explicit Harness(const Case& test_case, int workers = 2);

  /// `by_slot` [T K, width] in the order of the experts' lists; all elements of
  /// padding rows are `padding`.
  Matrix<float> InLists(MatrixView<const float> by_slot,
                        float padding = 0.0f) const;
  void Dispatch() { exchange.Dispatch(x.view(), ids.view(), weights.view()); }
  /// Everything that was sent arrived.
  bool Conserved() const;

  Case c;
  Topology mesh;
  Executor executor;
  std::unique_ptr<transport::Transport> transport;
  Conservation conservation;
  RankedExchange exchange;
  Matrix<int32_t> ids;
  size_t rows = 0;
  std::vector<size_t> places;
  Matrix<float> x;
  Matrix<float> weights;
};

}  // namespace isoloss::expert_parallel
