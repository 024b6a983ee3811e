// What an exchange does to the numbers it carries: named options, each modelled
// exactly (docs/distributed.md, "Algorithms").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace isoloss::expert_parallel {

/// How expert outputs are added up on their way back, and the gradients of
/// dispatched rows likewise. All sums are FP32 from +0; "rounded" means once,
/// to BF16 in a BF16 arm.
enum class Algorithm {
  /// One row per (token, slot) travels each way; the token's rank adds slots in
  /// slot order and rounds once. The reference: the same bits for every V.
  kFlat,
  /// DeepEP intranode: one row per (token, rank). A rank adds its experts' rows
  /// in slot order, rounded; the token's rank adds ranks, rounded.
  kRank,
  /// DeepEP internode: one row per (token, node), forwarded inside the node.
  /// Rank sums, rounded; node sums, rounded; the token's rank adds nodes,
  /// rounded.
  kNode,
  /// torchtitan's all-to-all: one row per (token, slot); the token's rank adds
  /// them by ascending expert id in BF16: rounded after every addition.
  kTitanBf16,
};

/// Where a row meets its combine weight.
enum class WeightSite {
  kSource,     ///< FP32, inside the sum over slots (kFlat only)
  kExpertOut,  ///< expert output * weight, rounded, on the expert's rank
  kBeforeFc2,  ///< SwiGLU output * weight, rounded, before w2 (Megatron)
};

/// In which order ranks (of a node) and nodes are added.
enum class CombineOrder {
  kRank,      ///< ascending (DeepEP V1)
  kLastSlot,  ///< ascending last slot of the token in them (DeepEP V2)
};

/// What ExchangeOptions::padding may be: multiples that real kernels ask for.
inline constexpr int64_t kPaddings[] = {1, 8, 16, 32, 128};

struct ExchangeOptions {
  Algorithm algorithm = Algorithm::kFlat;
  WeightSite weight_site = WeightSite::kSource;
  CombineOrder order = CombineOrder::kRank;
  /// Payloads (payload.h) of the rows that go to the experts: token rows in the
  /// forward pass, output gradients in the backward pass. What comes back is
  /// never quantised.
  std::string payload = "unquantized";
  std::string gradient_payload = "unquantized";
  /// Every expert's list of rows, in each dispatch unit, is filled up with zero
  /// rows to a multiple of this.
  size_t padding = 1;
};

/// Throws ConfigError, with a message that starts with `where`, for a payload
/// that does not exist, padding outside {1, 8, 16, 32, 128}, or a weight site
/// that the algorithm does not have.
void Validate(const ExchangeOptions& options, const char* where);

}  // namespace isoloss::expert_parallel
