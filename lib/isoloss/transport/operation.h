// Names the purpose of a collective operation. Every rank gives it the same
// name, so that ranks that lose each other can say where each of them is.
#pragma once

#include <cstdint>
#include <string>

namespace isoloss::transport {

/// Lists the operations of a training step (docs/distributed.md, "What
/// travels").
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

/// Returns a name such as "dispatch" or "combine".
const char* OpName(OpKind kind);

/// Returns whether the operation is one of the four that bring rows to experts
/// and back. The size of their messages depends on the routing alone.
inline bool MovesRows(OpKind kind) {
  return kind >= OpKind::kDispatch && kind <= OpKind::kCombineGradient;
}

struct Operation {
  OpKind kind;
  int layer = -1;  ///< MoE layer, from 0; -1: of no layer
  int hop = 0;     ///< of a route with gateways: 0 to the gateway, 1 from it
};

/// Returns a text such as "dispatch, MoE layer 2, hop 1".
std::string Describe(const Operation& operation);

}  // namespace isoloss::transport
