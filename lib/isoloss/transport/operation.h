// What a collective operation is for: named the same way by every rank, so that
// ranks that part company can say where each of them is.
#pragma once

#include <cstdint>
#include <string>

namespace isoloss::transport {

/// The operations of a training step (docs/distributed.md, "What travels").
enum class OpKind : uint16_t {
  kCounts = 1,        ///< who will send how much: allgather
  kDispatch,          ///< token rows to the experts' ranks
  kCombine,           ///< expert outputs back
  kDispatchGradient,  ///< gradients of the outputs to the experts' ranks
  kCombineGradient,   ///< gradients of rows and weights back
  kGradients,         ///< weight gradients between processes
  kWeights,           ///< weights between processes, for a digest or a file
  kScalars,           ///< losses, norms, counts
  kConservation,      ///< sums that must agree: the invariants
  kVote,              ///< may this step change the weights?
  kBarrier,
};

/// "dispatch", "combine", …
const char* OpName(OpKind kind);

/// Is it one of the four that bring rows to experts and back? What they move
/// depends on the routing alone.
inline bool MovesRows(OpKind kind) {
  return kind >= OpKind::kDispatch && kind <= OpKind::kCombineGradient;
}

struct Operation {
  OpKind kind;
  int layer = -1;  ///< MoE layer, from 0; -1: of no layer
  int hop = 0;     ///< of a route with gateways: 0 to the gateway, 1 from it
};

/// "dispatch, MoE layer 2, hop 1".
std::string Describe(const Operation& operation);

}  // namespace isoloss::transport
