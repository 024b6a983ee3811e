// Names the options of an exchange that change the numbers it carries. Each is
// modelled exactly (docs/distributed.md, "Algorithms").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace isoloss::expert_parallel {

/// An algorithm says how expert outputs are added up on their way back; the
/// gradients of dispatched rows are added likewise. All sums are FP32 from +0.
/// "Rounded" means once, to BF16 in a BF16 arm.
enum class Algorithm {
  /// One row per (token, slot) travels each way; the token's rank adds slots in
  /// slot order and rounds once. This is the reference: it gives the same bits
  /// for every V.
  kFlat,
  /// DeepEP intranode sends one row per (token, rank). A rank adds its experts'
  /// rows in slot order and rounds; the token's rank adds ranks and rounds.
  kRank,
  /// DeepEP internode sends one row per (token, node), forwarded inside the
  /// node. Rank sums and node sums are rounded; the token's rank adds nodes and
  /// rounds.
  kNode,
  /// torchtitan's all-to-all sends one row per (token, slot). The token's rank
  /// adds them by ascending expert id in BF16 and rounds after every addition.
  kTitanBf16,
};

/// A row meets its combine weight at one of these sites.
enum class WeightSite {
  kSource,     ///< FP32, inside the sum over slots (kFlat only)
  kExpertOut,  ///< expert output * weight, rounded, on the expert's rank
  kBeforeFc2,  ///< SwiGLU output * weight, rounded, before w2 (Megatron)
};

/// Ranks (of a node) and nodes are added in one of these orders.
enum class CombineOrder {
  kRank,      ///< ascending (DeepEP V1)
  kLastSlot,  ///< ascending last slot of the token in them (DeepEP V2)
};

/// ExchangeOptions::padding may be one of these multiples, which real kernels
/// ask for.
inline constexpr int64_t kPaddings[] = {1, 8, 16, 32, 128};

struct ExchangeOptions {
  Algorithm algorithm = Algorithm::kFlat;
  WeightSite weight_site = WeightSite::kSource;
  CombineOrder order = CombineOrder::kRank;
  /// These payloads (payload.h) encode the rows that go to the experts: token
  /// rows in the forward pass, output gradients in the backward pass. Rows that
  /// come back are never quantised.
  std::string payload = "unquantized";
  std::string gradient_payload = "unquantized";
  /// Each dispatch unit of every expert's list is filled up with zero rows to a
  /// multiple of this.
  size_t padding = 1;
};

/// Throws ConfigError, with a message that starts with `where`, for a payload
/// that does not exist, padding outside {1, 8, 16, 32, 128}, or a weight site
/// that the algorithm does not have.
void Validate(const ExchangeOptions& options, const char* where);

}  // namespace isoloss::expert_parallel
